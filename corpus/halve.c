/* A grey picture at half its size: every pixel the rounded mean of a square of four. */
#include <stdio.h>
#include <stdlib.h>

#ifndef H
#define H 61
#endif
#ifndef W
#define W 157
#endif

void halve(int h, int w, const unsigned char img[restrict 2 * h][2 * w], unsigned char out[restrict h][w])
{
#pragma mdh
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            out[y][x] = (img[2 * y][2 * x] + img[2 * y][2 * x + 1]
                       + img[2 * y + 1][2 * x] + img[2 * y + 1][2 * x + 1] + 2) >> 2;
}

int main(void)
{
    unsigned char (*img)[2 * W] = malloc(2 * H * 2 * W), (*out)[W] = malloc(H * W);
    int *sum = calloc(H * W, sizeof *sum), bad = 0;

    if (!img || !out || !sum)
        return 2;
    for (int y = 0; y < 2 * H; y++)             /* every pixel goes to its square */
        for (int x = 0; x < 2 * W; x++) {
            img[y][x] = (unsigned char)((y * 73u + x * 151u + (unsigned)y * x) % 256u);
            sum[y / 2 * W + x / 2] += img[y][x];
        }
    halve(H, W, (const unsigned char (*)[2 * W])img, out);
    for (int x = 0; x < H * W && !bad; x++) {
        const int off = 4 * out[x / W][x % W] - sum[x];
        if (off < -1 || off > 2) {
            printf("halve: mismatch at [%d][%d] got %d of %d\n", x / W, x % W, out[x / W][x % W], sum[x]);
            bad = 1;
        }
    }
    free(img);
    free(out);
    free(sum);
    if (!bad)
        puts("halve: ok");
    return bad;
}
