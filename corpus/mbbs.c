/* Maximum bottom box sum, first part: running sums of row sums. Two different operators that are not `cc`.
   The final maximum is a nest of its own. */
#include <stdio.h>
#include <stdlib.h>

#ifndef ROWS
#define ROWS 103
#endif
#ifndef COLS
#define COLS 97
#endif

void bottom_box_sums(int rows, int cols, float a[rows][cols], float out[rows])
{
    float s = 0.0f;
#pragma mdh
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < cols; j++)
            s += a[i][j];
        out[i] = s;         /* the box of rows 0..i */
    }
}

float best_box(const float *out, int rows)
{
    float best = out[0];
#pragma mdh
    for (int i = 1; i < rows; i++)
        best = best >= out[i] ? best : out[i];
    return best;
}

int main(void)
{
    float (*a)[COLS] = malloc(sizeof(float[ROWS][COLS]));
    float *out = malloc(ROWS * sizeof *out);
    long *row = calloc(ROWS, sizeof *row), box = 0, best = 0;
    int bad = 0;

    if (!a || !out || !row)
        return 2;
    for (size_t j = 0; j < COLS; j++)
        for (size_t i = 0; i < ROWS; i++) {
            a[i][j] = (float)((i * COLS + j) * 2654435761u >> 12 & 2) - 1.0f;
            row[i] += (long)a[i][j];
        }
    bottom_box_sums(ROWS, COLS, a, out);
    for (int i = 0; i < ROWS && !bad; i++) {
        box += row[i];
        if (i == 0 || box > best)
            best = box;
        if (out[i] != (float)box) {
            printf("mbbs: mismatch at %d got %g expected %ld\n", i, out[i], box);
            bad = 1;
        }
    }
    if (!bad && best_box(out, ROWS) != (float)best) {
        printf("mbbs: mismatch at best got %g expected %ld\n", best_box(out, ROWS), best);
        bad = 1;
    }
    free(a);
    free(out);
    free(row);
    if (!bad)
        puts("mbbs: ok");
    return bad;
}
