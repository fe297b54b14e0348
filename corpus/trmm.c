/* In-place product with a lower triangular matrix, B = alpha L B. From the last row up, so that the rows which are
   still to be read hold their old values. */
#include <stdio.h>
#include <stdlib.h>

#ifndef M
#define M 103
#endif
#ifndef N
#define N 91
#endif

void trmm(int m, int n, float alpha, float L[m][m], float B[m][n])
{
    int i, j, k;
    float acc;

#pragma mdh
    for (i = m - 1; i >= 0; i--)
        for (j = 0; j < n; j++) {
            acc = 0.0f;
            for (k = 0; k <= i; k++)
                acc += L[i][k] * B[k][j];
            B[i][j] = alpha * acc;
        }
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3.0f;
}

int main(void)
{
    const size_t cells = (size_t)M * N, step = cells / 5000 + 1;
    float *l = malloc(sizeof(float) * M * M);
    float *b = malloc(sizeof(float) * M * N);
    int bad = 0;

    if (!l || !b)
        return 2;
    for (size_t x = 0; x < (size_t)M * M; x++)      /* above the diagonal stands what must not be read */
        l[x] = x % M > x / M ? 1e30f : small(x);
    for (size_t x = 0; x < cells; x++)
        b[x] = small(x + 13);

    trmm(M, N, 2.0f, (float (*)[M])l, (float (*)[N])b);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t i = x / N, j = x % N;
        long expected = 0;
        for (size_t k = M; k-- > 0;)
            expected += k > i ? 0 : 2 * (long)l[i * M + k] * (long)small(k * N + j + 13);
        if (b[x] != (float)expected) {
            printf("trmm: mismatch at (%zu,%zu) got %g expected %ld\n", i, j, b[x], expected);
            bad = 1;
        }
    }
    free(l);
    free(b);
    if (!bad)
        puts("trmm: ok");
    return bad;
}
