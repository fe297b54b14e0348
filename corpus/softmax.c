/* Softmax of every row, made safe by its maximum. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef ROWS
#define ROWS 61
#endif
#ifndef COLS
#define COLS 157
#endif

void softmax(int rows, int cols, const float x[restrict rows][cols], float y[restrict rows][cols])
{
    int i, j;

#pragma mdh
    for (i = 0; i < rows; i++) {
        float top = -INFINITY, sum = 0.0f;

        for (j = 0; j < cols; j++)
            top = fmaxf(top, x[i][j]);
        for (j = 0; j < cols; j++) {
            y[i][j] = expf(x[i][j] - top);
            sum += y[i][j];
        }
        for (j = 0; j < cols; j++)
            y[i][j] /= sum;
    }
}

int main(void)
{
    float (*x)[COLS] = malloc(sizeof(float[ROWS][COLS])), (*y)[COLS] = malloc(sizeof(float[ROWS][COLS]));
    int bad = 0;

    if (!x || !y)
        return 2;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++)
            x[i][j] = (float)((unsigned)(i * 53 + j * 29) % 37u) * 0.5f - 9.0f;
    softmax(ROWS, COLS, (const float (*)[COLS])x, y);
    for (int i = 0; i < ROWS && !bad; i++) {
        double log_sum = x[i][COLS - 1];        /* log of the sum, one term after the other */
        for (int j = COLS - 2; j >= 0; j--) {
            const double high = fmax(log_sum, x[i][j]), low = fmin(log_sum, x[i][j]);
            log_sum = high + log1p(exp(low - high));
        }
        for (int j = 0; j < COLS && !bad; j++) {
            const double expected = exp(x[i][j] - log_sum);
            if (!(fabs(y[i][j] - expected) <= 1e-4 * expected)) {
                printf("softmax: mismatch at [%d][%d] got %g expected %g\n", i, j, y[i][j], expected);
                bad = 1;
            }
        }
    }
    free(x);
    free(y);
    if (!bad)
        puts("softmax: ok");
    return bad;
}
