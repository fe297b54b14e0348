/* Maximum over overlapping windows that may hang over the border; channels first. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef C
#define C 5
#endif
#ifndef H
#define H 61
#endif
#ifndef W
#define W 47
#endif

#define SIZE 3
#define STRIDE 2
#define PAD 1
#define OUT(n) (((n) + 2 * PAD - SIZE) / STRIDE + 1)

void max_pool(int c, int h, int w, int oh, int ow, const float img[c][h][w], float out[c][oh][ow])
{
    int ch, y, x, dy, dx;

#pragma mdh
    for (ch = 0; ch < c; ch++)
        for (y = 0; y < oh; y++)
            for (x = 0; x < ow; x++) {
                float best = -FLT_MAX;
                for (dy = 0; dy < SIZE; dy++)
                    for (dx = 0; dx < SIZE; dx++) {
                        int iy = STRIDE * y + dy - PAD, ix = STRIDE * x + dx - PAD;
                        if (iy >= 0 && iy < h && ix >= 0 && ix < w)
                            best = fmaxf(best, img[ch][iy][ix]);
                    }
                out[ch][y][x] = best;
            }
}

int main(void)
{
    float (*img)[H][W] = malloc(sizeof(float[C][H][W]));
    float (*out)[OUT(H)][OUT(W)] = malloc(sizeof(float[C][OUT(H)][OUT(W)]));
    float (*top)[OUT(H)][OUT(W)] = malloc(sizeof(float[C][OUT(H)][OUT(W)]));
    int bad = 0;

    if (!img || !out || !top)
        return 2;
    for (int c = 0; c < C; c++) {
        for (int y = 0; y < OUT(H); y++)
            for (int x = 0; x < OUT(W); x++)
                top[c][y][x] = -1e30f;
        for (int y = 0; y < H; y++)             /* every pixel offers itself to the windows that hold it */
            for (int x = 0; x < W; x++) {
                const float v = img[c][y][x] = (float)((unsigned)((c * 17 + y) * 59 + x * 23) % 97u) - 48.0f;
                for (int oy = 0; oy < OUT(H); oy++)
                    for (int ox = 0; ox < OUT(W); ox++) {
                        if (oy * STRIDE > y + PAD || oy * STRIDE + SIZE <= y + PAD)
                            break;
                        if (ox * STRIDE > x + PAD || ox * STRIDE + SIZE <= x + PAD)
                            continue;
                        if (v > top[c][oy][ox])
                            top[c][oy][ox] = v;
                    }
            }
    }
    max_pool(C, H, W, OUT(H), OUT(W), (const float (*)[H][W])img, out);
    for (int c = 0; c < C && !bad; c++)
        for (int y = 0; y < OUT(H) && !bad; y++)
            for (int x = 0; x < OUT(W) && !bad; x++)
                if (out[c][y][x] != top[c][y][x]) {
                    printf("max_pool: mismatch at [%d][%d][%d] got %g expected %g\n", c, y, x, out[c][y][x],
                           top[c][y][x]);
                    bad = 1;
                }
    free(img);
    free(out);
    free(top);
    if (!bad)
        puts("max_pool: ok");
    return bad;
}
