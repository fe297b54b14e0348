/* A product with a matrix most of whose elements are zero: nothing is done, and no row read, for those. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 203
#endif

void skipped_zeros(int n, const float a[n][n], const float b[n][n], float c[n][n])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            if (a[i][k] != 0)
                for (int j = 0; j < n; j++)
                    c[i][j] += a[i][k] * b[k][j];
}

static float given(size_t i, size_t k)
{
    const unsigned h = (unsigned)(i * N + k) * 2654435761u >> 9;

    return h % 5 ? 0.0f : (float)(h % 13) - 6.0f;
}

int main(void)
{
    const size_t n = N, cells = n * n, step = cells / 5000 + 1;
    float (*a)[N] = malloc(sizeof(float[N + 1][N])), (*b)[N] = malloc(sizeof(float[N + 1][N]));
    float (*c)[N] = malloc(sizeof(float[N + 1][N]));
    int bad = 0;

    if (!a || !b || !c)
        return 2;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            a[i][j] = given(i, j);
            /* a row of which no element is used may hold anything */
            b[i][j] = (float)((i * 7 + j * 3) % 11) - 5.0f;
            c[i][j] = (float)(j % 3);
        }
    for (size_t k = 0; k < n; k += 17) {
        for (size_t i = 0; i < n; i++)
            a[i][k] = 0.0f;
        for (size_t j = 0; j < n; j++)
            b[k][j] = NAN;
    }

    skipped_zeros(N, (const float (*)[N])a, (const float (*)[N])b, c);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t i = x / n, j = x % n;
        double expected = (double)(j % 3);
        for (size_t k = 0; k < n; k++)
            if (k % 17)
                expected += (double)given(i, k) * (double)b[k][j];
        if (!(fabs(c[i][j] - expected) <= 1e-3)) {
            printf("skipped_zeros: mismatch at (%zu,%zu) got %.9g expected %.9g\n", i, j, (double)c[i][j], expected);
            bad = 1;
        }
    }
    free(a);
    free(b);
    free(c);
    if (!bad)
        puts("skipped_zeros: ok");
    return bad;
}
