/* The inverse in place, by Gauss and Jordan, without pivoting: every row but one loses its multiple of that one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 131
#endif

void invert(int n, double a[n][n])
{
#pragma mdh
    for (int k = 0; k < n; k++) {
        const double pivot = 1.0 / a[k][k];

        a[k][k] = 1.0;
        for (int j = 0; j < n; j++)
            a[k][j] *= pivot;
        for (int i = 0; i < n; i++)
            if (i != k) {
                const double factor = a[i][k];

                a[i][k] = 0.0;
                for (int j = 0; j < n; j++)
                    a[i][j] -= factor * a[k][j];
            }
    }
}

static double given(size_t i, size_t j)
{
    return (double)(((i * N + j) * 2654435761u >> 9) % 7) - 3.0 + (i == j ? 4.0 * N : 0.0);
}

int main(void)
{
    const size_t n = N, cells = n * n, step = cells / 5000 + 1;
    double (*a)[N] = malloc(sizeof(double[N][N]));
    int bad = 0;

    if (!a)
        return 2;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            a[i][j] = given(i, j);

    invert(N, a);

    /* what was given times its inverse is the unit matrix */
    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t i = x / n, j = x % n;
        double got = 0.0;
        for (size_t k = 0; k < n; k++)
            got += given(i, k) * a[k][j];
        if (!(fabs(got - (i == j)) <= 1e-9)) {
            printf("gauss_jordan: mismatch at (%zu,%zu) got %.17g expected %d\n", i, j, got, i == j);
            bad = 1;
        }
    }
    free(a);
    if (!bad)
        puts("gauss_jordan: ok");
    return bad;
}
