/* Multi-channel convolution with constant strides, as the first layers of ResNet-50 and MobileNet need it.
   Linearised arrays behind index macros; run-time extents; the image may be larger than the nest reads. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 2
#endif
#ifndef P
#define P 9
#endif
#ifndef Q
#define Q 7
#endif
#ifndef K
#define K 8
#endif
#ifndef R
#define R 7
#endif
#ifndef S
#define S 7
#endif
#ifndef C
#define C 3
#endif
#ifndef SH
#define SH 2
#endif
#ifndef SW
#define SW 2
#endif
/* one row and one column more than the windows touch, as in the 230x230 images of ResNet-50 */
#define H (SH * (P - 1) + R + 1)
#define W (SW * (Q - 1) + S + 1)

#define IMG(n, y, x, c) img[(((n) * height + (y)) * width + (x)) * nc + (c)]
#define FLT(k, r, s, c) flt[(((k) * nr + (r)) * ns + (s)) * nc + (c)]
#define OUT(n, p, q, k) out[(((n) * np + (p)) * nq + (q)) * nk + (k)]

void mcc_strided(float *__restrict out, const float *__restrict img, const float *__restrict flt,
                 int nn, int np, int nq, int nk, int nr, int ns, int nc, int height, int width)
{
#pragma mdh
    for (int n = 0; n < nn; n++)
        for (int p = 0; p < np; p++)
            for (int q = 0; q < nq; q++)
                for (int k = 0; k < nk; k++) {
                    float sum = 0.0f;
                    for (int r = 0; r < nr; r++)
                        for (int s = 0; s < ns; s++)
                            for (int c = 0; c < nc; c++)
                                sum += IMG(n, SH * p + r, SW * q + s, c) * FLT(k, r, s, c);
                    OUT(n, p, q, k) = sum;
                }
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 5) - 2.0f;
}

int main(void)
{
    const size_t taps = (size_t)S * C;
    const size_t pixels = (size_t)N * H * W * C, weights = (size_t)K * R * S * C;
    const size_t cells = (size_t)N * P * Q * K, step = cells / 5000 + 1;
    float *img = calloc(pixels + 1, sizeof *img);
    float *flt = calloc(weights + 1, sizeof *flt);
    float *out = calloc(cells + 1, sizeof *out);
    int bad = 0;

    if (!img || !flt || !out)
        return 2;
    for (size_t x = 0; x < pixels; x++)
        img[x] = small(x);
    for (size_t x = 0; x < weights; x++)
        flt[x] = small(x + 3);
    for (size_t x = 0; x < cells; x++)
        out[x] = -99.0f;

    mcc_strided(out, img, flt, N, P, Q, K, R, S, C, H, W);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        size_t k = x % K, q = x / K % Q, p = x / K / Q % P, n = x / K / Q / P;
        float expected = 0.0f;
        for (size_t r = 0; r < R; r++) {
            const float *row = img + ((n * H + p * SH + r) * W + q * SW) * C;
            const float *weight = flt + (k * R + r) * S * C;
            for (size_t t = 0; t < taps; t++)
                expected += row[t] * weight[t];
        }
        if (out[x] != expected) {
            printf("mcc_strided: mismatch at (%zu,%zu,%zu,%zu) got %g expected %g\n", n, p, q, k, out[x], expected);
            bad = 1;
        }
    }
    free(img);
    free(flt);
    free(out);
    if (!bad)
        puts("mcc_strided: ok");
    return bad;
}
