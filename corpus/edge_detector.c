/* Edges by a ring and a cross: the mean of the eight neighbours of every pixel goes to a second image, from whose
   diagonal differences the edges overwrite the first one. */
#include <stdio.h>
#include <stdlib.h>

#ifndef H
#define H 83
#endif
#ifndef W
#define W 109
#endif

static inline int distance(int a, int b)
{
    return a > b ? a - b : b - a;
}

void edge_detector(int h, int w, int (*img)[w], int (*ring)[w])
{
    int y, x;

#pragma mdh
    {
        for (y = 1; y < h - 1; y++)
            for (x = 1; x < w - 1; x++)
                ring[y][x] = (img[y - 1][x - 1] + img[y - 1][x] + img[y - 1][x + 1]
                              + img[y][x - 1] + img[y][x + 1]
                              + img[y + 1][x - 1] + img[y + 1][x] + img[y + 1][x + 1]) / 8;
        for (y = 1; y < h - 2; y++)
            for (x = 2; x < w - 1; x++)
                img[y][x] = distance(ring[y][x], ring[y + 1][x - 1]) + distance(ring[y + 1][x], ring[y][x - 1]);
    }
}

static int before(int y, int x)
{
    return (int)(((unsigned)y * 2971u + (unsigned)x * 977u) % 241u) + (x * 2 > y ? 500 : 0);
}

/* Mean of the ring: the whole square without its centre. */
static int mean(int y, int x)
{
    int sum = -before(y, x);

    for (int d = 0; d < 9; d++)
        sum += before(y + d % 3 - 1, x + d / 3 - 1);
    return sum / 8;
}

int main(void)
{
    int (*img)[W] = malloc(sizeof(int[H][W])), (*ring)[W] = calloc(H, sizeof(int[W]));
    int bad = 0;

    if (!img || !ring)
        return 2;
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            img[y][x] = before(y, x);
    edge_detector(H, W, img, ring);
    for (int y = 0; y < H && !bad; y++)
        for (int x = 0; x < W && !bad; x++) {
            int expected = before(y, x);
            if (y >= 1 && y < H - 2 && x >= 2 && x < W - 1)
                expected = abs(mean(y + 1, x - 1) - mean(y, x)) + abs(mean(y, x - 1) - mean(y + 1, x));
            if (img[y][x] != expected) {
                printf("edge_detector: mismatch at [%d][%d] got %d expected %d\n", y, x, img[y][x], expected);
                bad = 1;
            }
        }
    free(img);
    free(ring);
    if (!bad)
        puts("edge_detector: ok");
    return bad;
}
