/* 2D convolution (correlation) of a linearised image, with a named nest and a continued directive. */
#include <stdio.h>
#include <stdlib.h>

#ifndef P
#define P 97
#endif
#ifndef Q
#define Q 101
#endif
#ifndef R
#define R 5
#endif
#ifndef S
#define S 5
#endif

void conv2d(float *restrict out, const float *restrict img, const float *restrict flt,
            int rows, int cols, int frows, int fcols)
{
#pragma mdh name(conv) \
            combine_ops(cc, cc, pw(+), pw(+)) \
            out(out) inp(img, flt) \
            sizes(rows=224, cols=224, frows=5, fcols=5) \
            sizes(rows=4096, cols=4096, frows=5, fcols=5)
    for (int p = 0; p < rows; p++)
        for (int q = 0; q < cols; q++) {
            float acc = 0;
            for (int r = 0; r < frows; r++)
                for (int s = 0; s < fcols; s++)
                    acc += img[(p + r) * (cols + fcols - 1) + (q + s)] * flt[r * fcols + s];
            out[p * cols + q] = acc;
        }
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3.0f;
}

int main(void)
{
    const size_t width = Q + S - 1, height = P + R - 1;
    const size_t taps = (size_t)R * S, cells = (size_t)P * Q, step = cells / 20000 + 1;
    float *img = calloc(width * height + 1, sizeof *img);
    float *flt = calloc(taps + 1, sizeof *flt);
    float *out = calloc(cells + 1, sizeof *out);
    int bad = 0;

    if (!img || !flt || !out)
        return 2;
    for (size_t x = 0; x < width * height; x++)
        img[x] = small(x);
    for (size_t x = 0; x < taps; x++)
        flt[x] = small(x + 5);
    for (size_t x = 0; x < cells; x++)
        out[x] = -99.0f;

    conv2d(out, img, flt, P, Q, R, S);

    for (size_t c = 0; c < cells && !bad; c = c + step < cells || c + 1 == cells ? c + step : cells - 1) {
        size_t p = c / Q, q = c % Q;
        float expected = 0;
        for (size_t x = 0; x < taps; x++)
            expected += flt[x] * small((p + x / S) * width + q + x % S);
        if (out[c] != expected) {
            printf("conv2d: mismatch at (%zu,%zu) got %g expected %g\n", p, q, out[c], expected);
            bad = 1;
        }
    }
    free(img);
    free(flt);
    free(out);
    if (!bad)
        puts("conv2d: ok");
    return bad;
}
