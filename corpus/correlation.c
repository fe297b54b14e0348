/* Correlation matrix of m variables over n observations: means, deviations (one where a variable does not vary),
   standardised data, products. The data are overwritten. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 113
#endif
#ifndef M
#define M 101
#endif

void correlation(int n, int m, double data[n][m], double mean[m], double dev[m], double corr[m][m])
{
    int i, j, k;

#pragma mdh
    {
        for (j = 0; j < m; j++) {
            mean[j] = 0.0;
            for (i = 0; i < n; i++)
                mean[j] += data[i][j];
            mean[j] /= n;
        }

        for (j = 0; j < m; j++) {
            dev[j] = 0.0;
            for (i = 0; i < n; i++)
                dev[j] += (data[i][j] - mean[j]) * (data[i][j] - mean[j]);
            dev[j] = sqrt(dev[j] / n);
            dev[j] = dev[j] < 1e-6 ? 1.0 : dev[j];
        }

        for (i = 0; i < n; i++)
            for (j = 0; j < m; j++)
                data[i][j] = (data[i][j] - mean[j]) / (sqrt(n) * dev[j]);

        /* upper triangle, mirrored */
        for (i = 0; i < m; i++) {
            corr[i][i] = 1.0;
            for (j = i + 1; j < m; j++) {
                corr[i][j] = 0.0;
                for (k = 0; k < n; k++)
                    corr[i][j] += data[k][i] * data[k][j];
                corr[j][i] = corr[i][j];
            }
        }
    }
}

/* An observation; neighbouring variables share something, every seventh variable is constant. */
static long observed(size_t i, size_t j)
{
    const size_t own = ((i * M + j) * 2654435761u >> 9) % 11, shared = (i * 2654435761u >> 7) % (j % 5 + 2);

    return j % 7 == 6 ? 5 : (long)(own + shared);
}

int main(void)
{
    const size_t n = N, m = M, cells = m * m, step = cells / 5000 + 1;
    double *data = malloc(sizeof(double) * n * m), *corr = malloc(sizeof(double) * m * m);
    double *mean = malloc(sizeof(double) * m), *dev = malloc(sizeof(double) * m);
    int bad = 0;

    if (!data || !corr || !mean || !dev)
        return 2;
    for (size_t x = 0; x < n * m; x++)
        data[x] = (double)observed(x / m, x % m);

    correlation(N, M, (double (*)[M])data, mean, dev, (double (*)[M])corr);

    /* from integer sums: (n Sxy - Sx Sy) / sqrt((n Sxx - Sx Sx) (n Syy - Sy Sy)) */
    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t a = x / m, b = x % m;
        long sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0;
        for (size_t i = 0; i < n; i++) {
            const long u = observed(i, a), v = observed(i, b);
            sa += u;
            sb += v;
            saa += u * u;
            sbb += v * v;
            sab += u * v;
        }
        const double va = (double)((long)n * saa - sa * sa), vb = (double)((long)n * sbb - sb * sb);
        double expected = a == b ? 1.0 : va > 0.0 && vb > 0.0 ? ((long)n * sab - sa * sb) / sqrt(va * vb) : 0.0;
        if (!(fabs(corr[x] - expected) <= 1e-9)) {
            printf("correlation: mismatch at (%zu,%zu) got %.17g expected %.17g\n", a, b, corr[x], expected);
            bad = 1;
        }
        expected = va > 0.0 ? sqrt(va) / n : 1.0;
        if (!(fabs(mean[a] * n - sa) <= 1e-9 * (1.0 + sa)) || !(fabs(dev[a] - expected) <= 1e-9 * expected)) {
            printf("correlation: mismatch at variable %zu got (%g, %g)\n", a, mean[a], dev[a]);
            bad = 1;
        }
    }
    free(data);
    free(corr);
    free(mean);
    free(dev);
    if (!bad)
        puts("correlation: ok");
    return bad;
}
