/* LU factors in place, without pivoting, looking right: divide a column, then update what is right and below. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 137
#endif

void lu(int n, double *a)
{
    int i, j, k;

#pragma mdh
    for (k = 0; k < n; k++)
        for (i = k + 1; i < n; i++) {
            a[i * n + k] /= a[k * n + k];
            for (j = k + 1; j < n; j++)
                a[i * n + j] -= a[i * n + k] * a[k * n + j];
        }
}

static double given(size_t i, size_t j)
{
    return (double)(((i * N + j) * 2654435761u >> 9) % 7) - 3.0 + (i == j ? 4.0 * N : 0.0);
}

int main(void)
{
    const size_t n = N, cells = n * n, step = cells / 5000 + 1;
    double *a = malloc(sizeof(double) * (cells + 1));
    int bad = 0;

    if (!a)
        return 2;
    for (size_t x = 0; x < cells; x++)
        a[x] = given(x / n, x % n);

    lu(N, a);

    /* the product of the factors is what was given */
    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t i = x / n, j = x % n;
        const double expected = given(i, j);
        double got = 0.0;
        for (size_t k = 0; k <= i && k <= j; k++)       /* the diagonal of L is one and not stored */
            got += (k == i ? 1.0 : a[i * n + k]) * a[k * n + j];
        if (!(fabs(got - expected) <= 1e-9 * (1.0 + fabs(expected)))) {
            printf("lu: mismatch at (%zu,%zu) got %.17g expected %g\n", i, j, got, expected);
            bad = 1;
        }
    }
    free(a);
    if (!bad)
        puts("lu: ok");
    return bad;
}
