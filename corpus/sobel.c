/* Strength of edges after Sobel on bytes: absolute gradients of both directions, added and cut off at 255. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef H
#define H 103
#endif
#ifndef W
#define W 149
#endif

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define ABS(a) ((a) < 0 ? -(a) : (a))

void sobel(int h, int w, const uint8_t *restrict img, uint8_t *restrict out)
{
    int y, x;

#pragma mdh
    for (y = 1; y < h - 1; y++)
        for (x = 1; x < w - 1; x++) {
            int gx = img[(y - 1) * w + x + 1] + 2 * img[y * w + x + 1] + img[(y + 1) * w + x + 1]
                     - img[(y - 1) * w + x - 1] - 2 * img[y * w + x - 1] - img[(y + 1) * w + x - 1];
            int gy = img[(y + 1) * w + x - 1] + 2 * img[(y + 1) * w + x] + img[(y + 1) * w + x + 1]
                     - img[(y - 1) * w + x - 1] - 2 * img[(y - 1) * w + x] - img[(y - 1) * w + x + 1];
            out[y * w + x] = (uint8_t)MIN(ABS(gx) + ABS(gy), 255);
        }
}

int main(void)
{
    static const int weight[3][3] = {{-1, 0, 1}, {-2, 0, 2}, {-1, 0, 1}};
    uint8_t *img = malloc((size_t)H * W), *out = calloc(H, W);
    int bad = 0;

    if (!img || !out)
        return 2;
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            img[y * W + x] = (uint8_t)((unsigned)(y * y + 3 * x) % 61u + ((x / 9 + y / 7) % 2 ? 120u : 0u));
    sobel(H, W, img, out);
    for (int y = 0; y < H && !bad; y++)
        for (int x = 0; x < W && !bad; x++) {
            int gx = 0, gy = 0, expected;
            if (y > 0 && y < H - 1 && x > 0 && x < W - 1)
                for (int d = 0; d < 9; d++) {
                    const int pixel = img[(y + d / 3 - 1) * W + x + d % 3 - 1];
                    gx += weight[d / 3][d % 3] * pixel;
                    gy += weight[d % 3][d / 3] * pixel;
                }
            expected = abs(gx) + abs(gy) > 255 ? 255 : abs(gx) + abs(gy);
            if (out[y * W + x] != expected) {
                printf("sobel: mismatch at (%d, %d) got %d expected %d\n", y, x, out[y * W + x], expected);
                bad = 1;
            }
        }
    free(img);
    free(out);
    if (!bad)
        puts("sobel: ok");
    return bad;
}
