/* Linear equations A x = b: LU factors in place row by row, then forward and backward substitution. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 131
#endif

void ludcmp(int n, double A[restrict n][n], double b[restrict n], double x[restrict n], double y[restrict n])
{
    int i, j, k;
    double w;

#pragma mdh
    {
        for (i = 0; i < n; i++) {
            for (j = 0; j < i; j++) {
                w = A[i][j];
                for (k = 0; k < j; k++)
                    w -= A[i][k] * A[k][j];
                A[i][j] = w / A[j][j];
            }
            for (j = i; j < n; j++) {
                w = A[i][j];
                for (k = 0; k < i; k++)
                    w -= A[i][k] * A[k][j];
                A[i][j] = w;
            }
        }

        /* L y = b */
        for (i = 0; i < n; i++) {
            w = b[i];
            for (j = 0; j < i; j++)
                w -= A[i][j] * y[j];
            y[i] = w;
        }

        /* U x = y */
        for (i = n - 1; i >= 0; i--) {
            w = y[i];
            for (j = i + 1; j < n; j++)
                w -= A[i][j] * x[j];
            x[i] = w / A[i][i];
        }
    }
}

static double given(size_t i, size_t j)
{
    return (double)(((i * N + j) * 2654435761u >> 9) % 7) - 3.0 + (i == j ? 4.0 * N : 0.0);
}

int main(void)
{
    const size_t n = N;
    double (*a)[N] = malloc(sizeof(double) * n * n);
    double *b = malloc(sizeof(double) * n), *x = malloc(sizeof(double) * n), *y = malloc(sizeof(double) * n);
    int bad = 0;

    if (!a || !b || !x || !y)
        return 2;
    for (size_t i = 0; i < n; i++) {
        b[i] = (double)(i * 31 % 13) + 1.0;
        x[i] = y[i] = 1e30;
        for (size_t j = 0; j < n; j++)
            a[i][j] = given(i, j);
    }

    ludcmp(N, a, b, x, y);

    for (size_t i = 0; i < n && !bad; i++) {
        double got = 0.0, forward = y[i];
        for (size_t j = n; j-- > 0;)
            got += given(i, j) * x[j];
        for (size_t j = i; j-- > 0;)
            forward += a[i][j] * y[j];
        if (!(fabs(got - b[i]) <= 1e-9 * (1.0 + b[i])) || !(fabs(forward - b[i]) <= 1e-9 * (1.0 + b[i]))) {
            printf("ludcmp: mismatch at equation %zu got %.17g and %.17g expected %g\n", i, got, forward, b[i]);
            bad = 1;
        }
    }
    free(a);
    free(b);
    free(x);
    free(y);
    if (!bad)
        puts("ludcmp: ok");
    return bad;
}
