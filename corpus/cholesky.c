/* Cholesky factor of a symmetric positive definite matrix, in place in the lower triangle, column by column and
   looking left. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 139
#endif

void cholesky(int n, double A[n][n])
{
    int i, j, k;
    double acc;

#pragma mdh
    for (j = 0; j < n; j++) {
        acc = A[j][j];
        for (k = 0; k < j; k++)
            acc -= A[j][k] * A[j][k];
        A[j][j] = sqrt(acc);

        for (i = j + 1; i < n; i++) {
            acc = A[i][j];
            for (k = 0; k < j; k++)
                acc -= A[i][k] * A[j][k];
            A[i][j] = acc / A[j][j];
        }
    }
}

static double small(size_t n)
{
    return (double)((n * 2654435761u >> 9) % 7) - 3.0;
}

/* Symmetric, and definite because the diagonal dominates. */
static double given(size_t i, size_t j)
{
    return i == j ? 4.0 * N : small(i < j ? i * N + j : j * N + i);
}

int main(void)
{
    const size_t n = N, cells = n * n, step = cells / 5000 + 1;
    double *a = malloc(sizeof(double) * n * n);
    int bad = 0;

    if (!a)
        return 2;
    for (size_t x = 0; x < cells; x++)
        a[x] = given(x / n, x % n);

    cholesky(N, (double (*)[N])a);

    /* L L^T is what was given; the upper triangle still stands there */
    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t i = x / n, j = x % n;
        const double expected = given(i, j);
        double got = a[x];
        if (j <= i) {
            got = 0.0;
            for (size_t k = 0; k <= j; k++)
                got += a[i * n + k] * a[j * n + k];
        }
        if (!(fabs(got - expected) <= 1e-9 * (j <= i ? 1.0 + fabs(expected) : 0.0))) {
            printf("cholesky: mismatch at (%zu,%zu) got %.17g expected %g\n", i, j, got, expected);
            bad = 1;
        }
    }
    for (size_t i = 0; i < n && !bad; i++)
        if (!(a[i * n + i] > 0.0)) {
            printf("cholesky: mismatch at diagonal %zu got %g\n", i, a[i * n + i]);
            bad = 1;
        }
    free(a);
    if (!bad)
        puts("cholesky: ok");
    return bad;
}
