/* Minima in two spellings: the conditional operator per row, and fmin/fmax from the C library over everything. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef ROWS
#define ROWS 53
#endif
#ifndef COLS
#define COLS 211
#endif

void row_minima(float *low, float (*a)[COLS], int rows)
{
#pragma mdh
    for (int i = 0; i < rows; i++) {
        low[i] = 1e30f;
        for (int j = 0; j < COLS; j++)
            low[i] = a[i][j] < low[i] ? a[i][j] : low[i];
    }
}

void bounds(const float *a, size_t n, double *lo, double *hi)
{
    double l = HUGE_VAL, h = -HUGE_VAL;
#pragma mdh
    for (size_t i = 0; i < n; i++) {
        l = fmin(l, a[i]);
        h = fmax(a[i], h);
    }
    *lo = l;
    *hi = h;
}

int main(void)
{
    float (*a)[COLS] = malloc(sizeof(float[ROWS][COLS]));
    float *low = malloc(ROWS * sizeof *low);
    double lo, hi, lo_expected, hi_expected;
    int bad = 0;

    if (!a || !low)
        return 2;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < COLS; j++)
            a[i][j] = (float)((i * COLS + j) * 2654435761u >> 10 & 4095) - 2048.0f;
    a[0][0] = 3000.0f;                      /* the extremes are the first and the last element */
    a[ROWS - 1][COLS - 1] = -3000.0f;

    row_minima(low, a, ROWS);
    bounds(&a[0][0], (size_t)ROWS * COLS, &lo, &hi);

    lo_expected = hi_expected = a[0][0];
    for (int i = 0; i < ROWS && !bad; i++) {
        float expected = a[i][COLS - 1];
        for (int j = COLS - 1; j >= 0; j--) {
            if (expected > a[i][j])
                expected = a[i][j];
            if (hi_expected < a[i][j])
                hi_expected = a[i][j];
        }
        if (lo_expected > expected)
            lo_expected = expected;
        if (low[i] != expected) {
            printf("fmin_ternary: mismatch at row %d got %g expected %g\n", i, low[i], expected);
            bad = 1;
        }
    }
    if (!bad && (lo != lo_expected || hi != hi_expected)) {
        printf("fmin_ternary: mismatch at bounds got [%g, %g] expected [%g, %g]\n", lo, hi, lo_expected, hi_expected);
        bad = 1;
    }
    free(a);
    free(low);
    if (!bad)
        puts("fmin_ternary: ok");
    return bad;
}
