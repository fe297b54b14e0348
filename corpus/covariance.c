/* Covariance matrix of m variables over n > 1 observations: the data are centred in place, then multiplied with
   their transpose; half of the symmetric result is computed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 109
#endif
#ifndef M
#define M 103
#endif

void covariance(int n, int m, float (*restrict data)[m], float *restrict mean, float (*restrict cov)[m])
{
#pragma mdh
    {
        for (int j = 0; j < m; j++) {
            float sum = 0.0f;
            for (int i = 0; i < n; i++)
                sum += data[i][j];
            mean[j] = sum / n;
        }

        for (int i = 0; i < n; i++)
            for (int j = 0; j < m; j++)
                data[i][j] -= mean[j];

        for (int i = 0; i < m; i++)
            for (int j = 0; j <= i; j++) {
                float sum = 0.0f;
                for (int k = 0; k < n; k++)
                    sum += data[k][i] * data[k][j];
                cov[i][j] = sum / (n - 1);
                cov[j][i] = cov[i][j];
            }
    }
}

/* An observation; all variables share something. */
static long observed(size_t i, size_t j)
{
    return (long)(((i * M + j) * 2654435761u >> 9) % 11) + (long)((i * 2654435761u >> 7) % (j % 5 + 2)) - 4;
}

int main(void)
{
    const size_t n = N, m = M, cells = m * m, step = cells / 5000 + 1;
    float (*data)[M] = malloc(sizeof(float) * n * m), (*cov)[M] = malloc(sizeof(float) * m * m);
    float *mean = malloc(sizeof(float) * m);
    int bad = 0;

    if (!data || !cov || !mean)
        return 2;
    for (size_t x = 0; x < n * m; x++)
        data[x / m][x % m] = (float)observed(x / m, x % m);

    covariance(N, M, data, mean, cov);

    /* from integer sums: (n Sxy - Sx Sy) / (n (n - 1)) */
    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t a = x / m, b = x % m;
        long sa = 0, sb = 0, sab = 0;
        for (size_t i = n; i-- > 0;) {
            sa += observed(i, a);
            sb += observed(i, b);
            sab += observed(i, a) * observed(i, b);
        }
        const double expected = (double)((long)n * sab - sa * sb) / ((double)n * (double)(n - 1));
        if (!(fabs(cov[a][b] - expected) <= 1e-3 * (1.0 + fabs(expected)))) {
            printf("covariance: mismatch at (%zu,%zu) got %g expected %g\n", a, b, cov[a][b], expected);
            bad = 1;
        }
        if (!(fabs(mean[a] - (double)sa / n) <= 1e-3)) {
            printf("covariance: mismatch at mean %zu got %g expected %g\n", a, mean[a], (double)sa / n);
            bad = 1;
        }
    }
    free(data);
    free(cov);
    free(mean);
    if (!bad)
        puts("covariance: ok");
    return bad;
}
