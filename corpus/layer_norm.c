/* Layer normalisation: every row to mean 0 and variance 1, then scaled and shifted by column. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef ROWS
#define ROWS 71
#endif
#ifndef COLS
#define COLS 127
#endif

void layer_norm(int rows, int cols, double eps, const double *x, const double *scale, const double *shift, double *y)
{
    int i, j;
    double mean, var, inv;

#pragma mdh
    for (i = 0; i < rows; i++) {
        mean = 0.0;
        for (j = 0; j < cols; j++)
            mean += x[i * cols + j];
        mean /= cols;

        var = 0.0;
        for (j = 0; j < cols; j++)
            var += (x[i * cols + j] - mean) * (x[i * cols + j] - mean);
        var /= cols;

        inv = 1.0 / sqrt(var + eps);
        for (j = 0; j < cols; j++)
            y[i * cols + j] = (x[i * cols + j] - mean) * inv * scale[j] + shift[j];
    }
}

int main(void)
{
    const double eps = 0.0009765625;
    double *x = malloc(ROWS * COLS * sizeof *x), *y = malloc(ROWS * COLS * sizeof *y);
    double *scale = malloc(COLS * sizeof *scale), *shift = malloc(COLS * sizeof *shift);
    int bad = 0;

    if (!x || !y || !scale || !shift)
        return 2;
    for (int j = 0; j < COLS; j++) {
        scale[j] = (double)(j % 5 - 2);
        shift[j] = (double)(j % 3);
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++)
            x[i * COLS + j] = (double)((unsigned)(i * 41 + j * 67) % 43u) - 20.0;
    layer_norm(ROWS, COLS, eps, x, scale, shift, y);
    for (int i = 0; i < ROWS && !bad; i++) {
        long sum = 0, squares = 0;              /* variance from integer moments */
        for (int j = COLS - 1; j >= 0; j--) {
            const long v = (long)x[i * COLS + j];
            sum += v;
            squares += v * v;
        }
        for (int j = 0; j < COLS && !bad; j++) {
            const double var = (double)(COLS * squares - sum * sum) / ((double)COLS * COLS);
            const double centred = (double)(COLS * (long)x[i * COLS + j] - sum) / COLS;
            const double expected = shift[j] + scale[j] * centred / sqrt(var + eps);
            if (!(fabs(y[i * COLS + j] - expected) <= 1e-9)) {
                printf("layer_norm: mismatch at (%d, %d) got %g expected %g\n", i, j, y[i * COLS + j], expected);
                bad = 1;
            }
        }
    }
    free(x);
    free(y);
    free(scale);
    free(shift);
    if (!bad)
        puts("layer_norm: ok");
    return bad;
}
