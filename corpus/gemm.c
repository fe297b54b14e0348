/* General matrix product C = alpha A B + beta C: the old result is scaled in place before the products go on top. */
#include <stdio.h>
#include <stdlib.h>

#ifndef M
#define M 83
#endif
#ifndef N
#define N 97
#endif
#ifndef P
#define P 71
#endif

void gemm(int m, int n, int p, double alpha, double beta, double A[restrict m][p], double B[restrict p][n],
          double C[restrict m][n])
{
    int i, j, k;

#pragma mdh
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++) {
            C[i][j] *= beta;
            for (k = 0; k < p; k++)
                C[i][j] += alpha * A[i][k] * B[k][j];
        }
}

static double small(size_t n)
{
    return (double)((n * 2654435761u >> 9) % 7) - 3.0;
}

int main(void)
{
    const size_t cells = (size_t)M * N, step = cells / 5000 + 1;
    double *a = malloc(sizeof(double) * M * P);
    double *b = malloc(sizeof(double) * P * N);
    double *c = malloc(sizeof(double) * M * N);
    int bad = 0;

    if (!a || !b || !c)
        return 2;
    for (size_t x = 0; x < (size_t)M * P; x++)
        a[x] = small(x);
    for (size_t x = 0; x < (size_t)P * N; x++)
        b[x] = small(5 * x + 1);
    for (size_t x = 0; x < cells; x++)
        c[x] = small(x + 77);

    gemm(M, N, P, 2.0, -3.0, (double (*)[P])a, (double (*)[N])b, (double (*)[N])c);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t row = x / N, col = x % N;
        long products = 0;
        for (size_t k = P; k-- > 0;)
            products += (long)a[row * P + k] * (long)b[k * N + col];
        const double expected = (double)(2 * products) - 3.0 * small(x + 77);
        if (c[x] != expected) {
            printf("gemm: mismatch at (%zu,%zu) got %g expected %g\n", row, col, c[x], expected);
            bad = 1;
        }
    }
    free(a);
    free(b);
    free(c);
    if (!bad)
        puts("gemm: ok");
    return bad;
}
