/* Bilateral filter: a mean weighted by nearness in place and in value, normalised; pixels beyond the border are those
   of the border. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef H
#define H 43
#endif
#ifndef W
#define W 59
#endif
#ifndef R
#define R 3
#endif

static inline int clamp(int v, int low, int high)
{
    return v < low ? low : v > high ? high : v;
}

void bilateral(int h, int w, int r, float space, float tone, const float img[h][w], float out[restrict h][w])
{
    int y, x, dy, dx;

#pragma mdh
    for (y = 0; y < h; y++)
        for (x = 0; x < w; x++) {
            float sum = 0.0f, norm = 0.0f;

            for (dy = -r; dy <= r; dy++)
                for (dx = -r; dx <= r; dx++) {
                    const float v = img[clamp(y + dy, 0, h - 1)][clamp(x + dx, 0, w - 1)];
                    const float d = v - img[y][x];
                    const float weight = expf(-space * (float)(dy * dy + dx * dx) - tone * d * d);

                    sum += weight * v;
                    norm += weight;
                }
            out[y][x] = sum / norm;
        }
}

int main(void)
{
    const double space = 0.125, tone = 0.03125;
    float (*img)[W] = malloc(sizeof(float[H][W])), (*out)[W] = malloc(sizeof(float[H][W]));
    double near[R + 1];
    int bad = 0;

    if (!img || !out)
        return 2;
    for (int d = 0; d <= R; d++)
        near[d] = exp(-space * d * d);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            img[y][x] = (float)((unsigned)(y * 31 + x * 7) % 13u) + (x > y ? 20.0f : 0.0f);
    bilateral(H, W, R, (float)space, (float)tone, (const float (*)[W])img, out);
    for (int y = 0; y < H && !bad; y++)
        for (int x = 0; x < W && !bad; x++) {
            double shift = 0.0, norm = 0.0, expected;
            for (int b = x + R; b >= x - R; b--)
                for (int a = y + R; a >= y - R; a--) {
                    const int row = a < 0 ? 0 : a >= H ? H - 1 : a, column = b < 0 ? 0 : b >= W ? W - 1 : b;
                    const double d = (double)img[row][column] - img[y][x];
                    const double weight = near[abs(a - y)] * near[abs(b - x)] * exp(-tone * d * d);
                    shift += weight * d;
                    norm += weight;
                }
            expected = img[y][x] + shift / norm;
            if (!(fabs(out[y][x] - expected) <= 1e-3)) {
                printf("bilateral: mismatch at [%d][%d] got %g expected %g\n", y, x, out[y][x], expected);
                bad = 1;
            }
        }
    free(img);
    free(out);
    if (!bad)
        puts("bilateral: ok");
    return bad;
}
