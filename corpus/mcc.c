/* Multi-channel convolution, stride 1: seven dimensions, NHWC images, KRSC filters, NPQK results.
   Pointers to arrays of macro extents; braces nowhere. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 2
#endif
#ifndef P
#define P 7
#endif
#ifndef Q
#define Q 5
#endif
#ifndef K
#define K 11
#endif
#ifndef R
#define R 3
#endif
#ifndef S
#define S 3
#endif
#ifndef C
#define C 13
#endif
#define H (P + R - 1)
#define W (Q + S - 1)

void mcc(float (*out)[P][Q][K], float (*img)[H][W][C], float (*flt)[R][S][C])
{
    int n, p, q, k, r, s, c;

#pragma mdh
    for (n = 0; n < N; n++)
    for (p = 0; p < P; p++)
    for (q = 0; q < Q; q++)
    for (k = 0; k < K; k++)
    for (r = 0; r < R; r++)
    for (s = 0; s < S; s++)
    for (c = 0; c < C; c++)
        out[n][p][q][k] += img[n][p + r][q + s][c] * flt[k][r][s][c];
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 5) - 2.0f;
}

int main(void)
{
    const size_t pixels = (size_t)N * H * W * C, weights = (size_t)K * R * S * C;
    const size_t cells = (size_t)N * P * Q * K, step = cells / 2000 + 1;
    float *img = malloc(pixels * sizeof *img);
    float *flt = malloc(weights * sizeof *flt);
    float *out = malloc(cells * sizeof *out);
    int bad = 0;

    if (!img || !flt || !out)
        return 2;
    for (size_t x = 0; x < pixels; x++)
        img[x] = small(x);
    for (size_t x = 0; x < weights; x++)
        flt[x] = small(x + 3);
    for (size_t x = 0; x < cells; x++)
        out[x] = 1.0f;

    mcc((void *)out, (void *)img, (void *)flt);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        size_t k = x % K, q = x / K % Q, p = x / K / Q % P, n = x / K / Q / P;
        long expected = 1;
        for (size_t t = 0; t < (size_t)R * S * C; t++) {
            size_t c = t % C, s = t / C % S, r = t / C / S;
            expected += (long)img[((n * H + p + r) * W + q + s) * C + c] * (long)flt[k * R * S * C + t];
        }
        if (out[x] != (float)expected) {
            printf("mcc: mismatch at (%zu,%zu,%zu,%zu) got %g expected %ld\n", n, p, q, k, out[x], expected);
            bad = 1;
        }
    }
    free(img);
    free(flt);
    free(out);
    if (!bad)
        puts("mcc: ok");
    return bad;
}
