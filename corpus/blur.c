/* Box blur in two stages, three pixels along the rows, then three along the columns; integer pixels. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef H
#define H 97
#endif
#ifndef W
#define W 131
#endif

void blur(int h, int w, const uint16_t img[restrict h][w], uint16_t along[restrict h][w], uint16_t out[restrict h][w])
{
#pragma mdh
    {
        for (int y = 0; y < h; y++)
            for (int x = 1; x < w - 1; x++)
                along[y][x] = (img[y][x - 1] + img[y][x] + img[y][x + 1]) / 3;
        for (int y = 1; y < h - 1; y++)
            for (int x = 1; x < w - 1; x++)
                out[y][x] = (along[y - 1][x] + along[y][x] + along[y + 1][x]) / 3;
    }
}

int main(void)
{
    uint16_t (*img)[W] = malloc(sizeof(uint16_t[H][W]));
    uint16_t (*along)[W] = malloc(sizeof(uint16_t[H][W]));
    uint16_t (*out)[W] = malloc(sizeof(uint16_t[H][W]));
    int bad = 0;

    if (!img || !along || !out)
        return 2;
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            img[y][x] = (uint16_t)(((unsigned)y * 613u + (unsigned)x * 7901u) % 4093u);
            along[y][x] = out[y][x] = 7;
        }
    blur(H, W, (const uint16_t (*)[W])img, along, out);
    for (int y = 0; y < H && !bad; y++)
        for (int x = 0; x < W && !bad; x++) {
            unsigned expected = 7;              /* the border is left alone */
            if (y > 0 && y < H - 1 && x > 0 && x < W - 1) {
                expected = 0;
                for (int dy = 1; dy >= -1; dy--) {
                    unsigned row = 0;
                    for (int dx = 1; dx >= -1; dx--)
                        row += img[y + dy][x + dx];
                    expected += row / 3;
                }
                expected /= 3;
            }
            if (out[y][x] != expected) {
                printf("blur: mismatch at [%d][%d] got %d expected %u\n", y, x, out[y][x], expected);
                bad = 1;
            }
        }
    free(img);
    free(along);
    free(out);
    if (!bad)
        puts("blur: ok");
    return bad;
}
