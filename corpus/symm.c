/* C = alpha A B + beta C with a symmetric A of which only the lower triangle is stored: left of the diagonal the
   row is read, from the diagonal on the column. Column-major with leading dimensions, as Fortran callers have it. */
#include <stdio.h>
#include <stdlib.h>

#ifndef M
#define M 89
#endif
#ifndef N
#define N 73
#endif

void symm(int m, int n, double alpha, const double *a, int lda, const double *b, int ldb, double beta, double *c,
          int ldc)
{
    int i, j, k;
    double acc;

#pragma mdh
    for (j = 0; j < n; j++)
        for (i = 0; i < m; i++) {
            acc = 0.0;
            for (k = 0; k < i; k++)
                acc += a[i + k * lda] * b[k + j * ldb];
            for (k = i; k < m; k++)
                acc += a[k + i * lda] * b[k + j * ldb];
            c[i + j * ldc] = beta * c[i + j * ldc] + alpha * acc;
        }
}

static double small(size_t n)
{
    return (double)((n * 2654435761u >> 9) % 7) - 3.0;
}

int main(void)
{
    /* leading dimensions larger than the rows in use */
    const size_t m = M, n = N, lda = M + 1, ldb = M + 2, ldc = M + 3, cells = m * n, step = cells / 5000 + 1;
    double *a = malloc(sizeof(double) * lda * m);
    double *b = malloc(sizeof(double) * ldb * n);
    double *c = malloc(sizeof(double) * ldc * n);
    int bad = 0;

    if (!a || !b || !c)
        return 2;
    for (size_t x = 0; x < lda * m; x++)        /* above the diagonal stands what must not be read */
        a[x] = x % lda < x / lda || x % lda >= m ? 1e30 : small(x);
    for (size_t x = 0; x < ldb * n; x++)
        b[x] = small(3 * x + 4);
    for (size_t x = 0; x < ldc * n; x++)
        c[x] = small(x + 19);

    symm(M, N, 3.0, a, lda, b, ldb, -2.0, c, ldc);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t i = x % m, j = x / m;
        long sum = 0;
        for (size_t k = m; k-- > 0;) {
            const size_t low = k > i ? k : i, high = k > i ? i : k;
            sum += (long)a[high * lda + low] * (long)b[j * ldb + k];
        }
        const double expected = (double)(3 * sum) - 2.0 * small(i + j * ldc + 19);
        if (c[i + j * ldc] != expected) {
            printf("symm: mismatch at (%zu,%zu) got %g expected %g\n", i, j, c[i + j * ldc], expected);
            bad = 1;
        }
    }
    for (size_t x = 0; x < ldc * n && !bad; x++)
        if (x % ldc >= m && c[x] != small(x + 19)) {
            printf("symm: mismatch at padding %zu got %g expected %g\n", x, c[x], small(x + 19));
            bad = 1;
        }
    free(a);
    free(b);
    free(c);
    if (!bad)
        puts("symm: ok");
    return bad;
}
