/* Symmetric rank-2k update of the lower triangle, C = alpha (A B^T + B A^T) + beta C; the upper one is left alone. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 101
#endif
#ifndef P
#define P 67
#endif

void syr2k(int n, int p, float alpha, float beta, float A[n][p], float B[n][p], float C[n][n])
{
    int i, j, k;

#pragma mdh
    {
        for (i = 0; i < n; i++)
            for (j = 0; j <= i; j++)
                C[i][j] = beta * C[i][j];

        for (i = 0; i < n; i++)
            for (j = 0; j <= i; j++)
                for (k = 0; k < p; k++)
                    C[i][j] += alpha * (A[i][k] * B[j][k] + B[i][k] * A[j][k]);
    }
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3.0f;
}

int main(void)
{
    const size_t cells = (size_t)N * N, step = cells / 5000 + 1;
    float *a = malloc(sizeof(float) * N * P);
    float *b = malloc(sizeof(float) * N * P);
    float *c = malloc(sizeof(float) * N * N);
    int bad = 0;

    if (!a || !b || !c)
        return 2;
    for (size_t x = 0; x < (size_t)N * P; x++) {
        a[x] = small(x);
        b[x] = small(9 * x + 8);
    }
    for (size_t x = 0; x < cells; x++)
        c[x] = small(x + 31);

    syr2k(N, P, 3.0f, 2.0f, (float (*)[P])a, (float (*)[P])b, (float (*)[N])c);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t i = x / N, j = x % N;
        long expected = (long)small(x + 31);
        if (j <= i) {
            long left = 0, right = 0;
            for (size_t k = P; k-- > 0;) {
                left += (long)a[i * P + k] * (long)b[j * P + k];
                right += (long)a[j * P + k] * (long)b[i * P + k];
            }
            expected = 2 * expected + 3 * (left + right);
        }
        if (c[x] != (float)expected) {
            printf("syr2k: mismatch at (%zu,%zu) got %g expected %ld\n", i, j, c[x], expected);
            bad = 1;
        }
    }
    free(a);
    free(b);
    free(c);
    if (!bad)
        puts("syr2k: ok");
    return bad;
}
