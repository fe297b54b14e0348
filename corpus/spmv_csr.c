/* Sparse matrix times vector: rows compressed, the vector gathered through the column numbers. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 5003
#endif
#ifndef M
#define M 4001
#endif
#ifndef PER_ROW
#define PER_ROW 9
#endif

void spmv_csr(int n, int m, int nnz, const int *restrict rowptr, const int *restrict col, const double *restrict val,
              const double *restrict x, double *restrict y)
{
    (void)m;
    (void)nnz;
#pragma mdh
    for (int i = 0; i < n; i++) {
        double sum = 0.0;
        for (int k = rowptr[i]; k < rowptr[i + 1]; k++)
            sum += val[k] * x[col[k]];
        y[i] = sum;
    }
}

int main(void)
{
    const int n = N, m = M;
    int *rowptr = malloc((n + 1) * sizeof *rowptr), *row, *col;
    double *val, *x = malloc(m * sizeof *x), *y = malloc(n * sizeof *y), *expected = calloc(n, sizeof *expected);
    int nnz, bad = 0;

    if (!rowptr || !x || !y || !expected)
        return 2;
    rowptr[0] = 0;
    for (int i = 0; i < n; i++)                 /* some rows are empty */
        rowptr[i + 1] = rowptr[i] + (int)((unsigned)i * 2654435761u >> 9) % (PER_ROW + 1);
    nnz = rowptr[n];
    row = calloc(nnz + 1, sizeof *row);
    col = calloc(nnz + 1, sizeof *col);
    val = calloc(nnz + 1, sizeof *val);
    if (!row || !col || !val)
        return 2;
    for (int i = 0; i < n; i++)
        for (int k = rowptr[i]; k < rowptr[i + 1]; k++) {
            row[k] = i;
            col[k] = (int)((unsigned)(k * 13 + i) * 40503u % (unsigned)m);
            val[k] = (double)(k % 11 - 5);
        }
    for (int j = 0; j < m; j++)
        x[j] = (double)(j % 9 - 4);
    spmv_csr(n, m, nnz, rowptr, col, val, x, y);
    for (int k = nnz - 1; k >= 0; k--)          /* entry by entry, scattered */
        expected[row[k]] += val[k] * x[col[k]];
    for (int i = 0; i < n && !bad; i++)
        if (y[i] != expected[i]) {
            printf("spmv_csr: mismatch at %d got %g expected %g\n", i, y[i], expected[i]);
            bad = 1;
        }
    free(rowptr);
    free(row);
    free(col);
    free(val);
    free(x);
    free(y);
    free(expected);
    if (!bad)
        puts("spmv_csr: ok");
    return bad;
}
