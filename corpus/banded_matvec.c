/* Banded matrix times vector; of every row only the band is kept, its diagonal in column `below`. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 3001
#endif
#ifndef BELOW
#define BELOW 4
#endif
#ifndef ABOVE
#define ABOVE 7
#endif

#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

void banded_matvec(int n, int below, int above, const float band[n][below + above + 1], const float *x, float *y)
{
    int i, j;

#pragma mdh
    for (i = 0; i < n; i++) {
        y[i] = 0.0f;
        for (j = MAX(0, i - below); j <= MIN(n - 1, i + above); j++)
            y[i] += band[i][j - i + below] * x[j];
    }
}

int main(void)
{
    const int n = N, width = BELOW + ABOVE + 1;
    float (*band)[BELOW + ABOVE + 1] = malloc(n * sizeof *band), *x = malloc(n * sizeof *x);
    float *y = malloc(n * sizeof *y);
    long *expected = calloc(n, sizeof *expected);
    int bad = 0;

    if (!band || !x || !y || !expected)
        return 2;
    for (int i = 0; i < n; i++) {
        x[i] = (float)(i % 9 - 4);
        y[i] = -77.0f;
        for (int d = 0; d < width; d++)
            band[i][d] = (float)((i * 5 + d * 3) % 13 - 6);
    }
    banded_matvec(n, BELOW, ABOVE, (const float (*)[BELOW + ABOVE + 1])band, x, y);
    for (int d = width - 1; d >= 0; d--)        /* diagonal by diagonal */
        for (int i = 0; i < n; i++)
            if (i + d >= BELOW && i + d - BELOW < n)
                expected[i] += (long)band[i][d] * (long)x[i + d - BELOW];
    for (int i = 0; i < n && !bad; i++)
        if (y[i] != (float)expected[i]) {
            printf("banded_matvec: mismatch at %d got %g expected %ld\n", i, y[i], expected[i]);
            bad = 1;
        }
    free(band);
    free(x);
    free(y);
    free(expected);
    if (!bad)
        puts("banded_matvec: ok");
    return bad;
}
