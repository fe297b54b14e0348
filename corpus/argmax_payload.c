/* Per row, the best score with its position and a payload that belongs to it. */
#include <stdio.h>
#include <stdlib.h>

#ifndef ROWS
#define ROWS 37
#endif
#ifndef COLS
#define COLS 401
#endif

void best_per_row(int rows, int cols, float score[rows][cols], const unsigned char label[cols],
                  float top[rows], int where[rows], unsigned char who[rows])
{
#pragma mdh
    for (int r = 0; r < rows; r++) {
        float max = -1e30f;
        int arg = -1;
        unsigned char payload = 0;
        for (int c = 0; c < cols; c++) {
            if (score[r][c] > max) {
                max = score[r][c];
                arg = c;
                payload = label[c];
            }
        }
        top[r] = max;
        where[r] = arg;
        who[r] = payload;
    }
}

int main(void)
{
    float (*score)[COLS] = malloc(sizeof(float[ROWS][COLS]));
    unsigned char *label = malloc(COLS);
    float *top = malloc(ROWS * sizeof *top);
    int *where = malloc(ROWS * sizeof *where);
    unsigned char *who = malloc(ROWS);
    int bad = 0;

    if (!score || !label || !top || !where || !who)
        return 2;
    for (size_t c = 0; c < COLS; c++)
        label[c] = (unsigned char)(c * 7 + 1);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < COLS; c++)
            score[r][c] = (float)((r * COLS + c) * 2654435761u >> 12 & 63) - 90.0f;
    score[ROWS / 2][COLS - 1] = 100.0f;

    best_per_row(ROWS, COLS, score, label, top, where, who);

    for (int r = 0; r < ROWS && !bad; r++) {
        int arg = COLS - 1;
        for (int c = COLS - 2; c >= 0; c--) /* from the right: the leftmost of the best remains */
            if (score[r][c] >= score[r][arg])
                arg = c;
        if (top[r] != score[r][arg] || where[r] != arg || who[r] != (unsigned char)(arg * 7 + 1)) {
            printf("argmax_payload: mismatch at row %d got (%g, %d, %d) expected (%g, %d, %d)\n",
                   r, top[r], where[r], who[r], score[r][arg], arg, (arg * 7 + 1) & 255);
            bad = 1;
        }
    }
    free(score);
    free(label);
    free(top);
    free(where);
    free(who);
    if (!bad)
        puts("argmax_payload: ok");
    return bad;
}
