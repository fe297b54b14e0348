/* Conway's game of life on a torus, some generations: into a second board and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef H
#define H 64
#endif
#ifndef W
#define W 97
#endif
#ifndef T
#define T 12
#endif

void game_of_life(int steps, int h, int w, unsigned char *cell, unsigned char *next)
{
    int t, y, x;

#pragma mdh noalias(cell, next)
    for (t = 0; t < steps; t++) {
        for (y = 0; y < h; y++)
            for (x = 0; x < w; x++) {
                const int up = y == 0 ? h - 1 : y - 1, down = y == h - 1 ? 0 : y + 1;
                const int left = x == 0 ? w - 1 : x - 1, right = x == w - 1 ? 0 : x + 1;
                const int alive = cell[up * w + left] + cell[up * w + x] + cell[up * w + right]
                                + cell[y * w + left] + cell[y * w + right]
                                + cell[down * w + left] + cell[down * w + x] + cell[down * w + right];

                next[y * w + x] = alive == 3 || (alive == 2 && cell[y * w + x] == 1) ? 1 : 0;
            }
        for (y = 0; y < h; y++)
            for (x = 0; x < w; x++)
                cell[y * w + x] = next[y * w + x];
    }
}

int main(void)
{
    unsigned char *cell = malloc(H * W), *next = calloc(H, W), *board = malloc(H * W), *around = malloc(H * W);
    int bad = 0;

    if (!cell || !next || !board || !around)
        return 2;
    for (int x = 0; x < H * W; x++)
        cell[x] = board[x] = (unsigned char)(((unsigned)x * 2654435761u >> 17) % 3 == 0);
    game_of_life(T, H, W, cell, next);
    for (int t = 0; t < T; t++) {               /* the living count themselves in around them */
        memset(around, 0, H * W);
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                if (board[y * W + x])
                    for (int d = 0; d < 9; d++)
                        if (d != 4)
                            around[(y + d / 3 + H - 1) % H * W + (x + d % 3 + W - 1) % W]++;
        for (int x = 0; x < H * W; x++)
            board[x] = (unsigned char)((around[x] | board[x]) == 3);
    }
    for (int x = 0; x < H * W && !bad; x++)
        if (cell[x] != board[x]) {
            printf("game_of_life: mismatch at (%d, %d) got %d expected %d\n", x / W, x % W, cell[x], board[x]);
            bad = 1;
        }
    free(cell);
    free(next);
    free(board);
    free(around);
    if (!bad)
        puts("game_of_life: ok");
    return bad;
}
