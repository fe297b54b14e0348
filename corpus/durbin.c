/* Durbin's recursion for the Yule-Walker equations: T y = -r, where T is the symmetric Toeplitz matrix with ones on
   the diagonal and r[0], r[1], ... beside it. Every order mirrors the solution of the order below. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 1009
#endif

void durbin(int n, const double *r, double *y, double *z)
{
    double alpha, beta, sum;
    int i, k;

    y[0] = -r[0];
    beta = 1.0;
    alpha = -r[0];

#pragma mdh
    for (k = 1; k < n; k++) {
        beta = (1.0 - alpha * alpha) * beta;
        sum = 0.0;
        for (i = 0; i < k; i++)
            sum += r[k - i - 1] * y[i];
        alpha = -(r[k] + sum) / beta;

        for (i = 0; i < k; i++)
            z[i] = y[i] + alpha * y[k - i - 1];
        for (i = 0; i < k; i++)
            y[i] = z[i];
        y[k] = alpha;
    }
}

int main(void)
{
    const int n = N;
    double *r = malloc(sizeof(double) * N), *y = malloc(sizeof(double) * N), *z = malloc(sizeof(double) * N);
    int bad = 0;

    if (!r || !y || !z)
        return 2;
    for (int i = 0; i < n; i++) {       /* decays fast enough for the diagonal to dominate */
        r[i] = (i % 3 == 1 ? -0.25 : 0.25) / ((i + 1.0) * (i + 1.0));
        y[i] = z[i] = 1e30;
    }

    durbin(N, r, y, z);

    for (int i = 0; i < n && !bad; i++) {
        double residual = r[i];
        for (int j = 0; j < n; j++)
            residual += (i == j ? 1.0 : r[abs(i - j) - 1]) * y[j];
        if (!(fabs(residual) <= 1e-9)) {
            printf("durbin: mismatch at equation %d residual %g\n", i, residual);
            bad = 1;
        }
    }
    free(r);
    free(y);
    free(z);
    if (!bad)
        puts("durbin: ok");
    return bad;
}
