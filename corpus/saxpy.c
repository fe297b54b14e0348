/* y = a x + y in single precision, pointers without restrict. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

void saxpy(int n, float a, const float *x, float *y)
{
    int i;

#pragma mdh
    for (i = 0; i < n; i++)
        y[i] = a * x[i] + y[i];
}

int main(void)
{
    const int n = N;
    float *x = calloc(n + 1, sizeof *x), *y = calloc(n + 1, sizeof *y);
    int bad = 0;

    if (!x || !y)
        return 2;
    for (int i = 0; i < n; i++) {
        x[i] = (float)(i % 101 - 50);
        y[i] = (float)(i % 7);
    }
    saxpy(n, 3.0f, x, y);
    for (int i = n - 1; i >= 0 && !bad; i--)
        if ((int)y[i] != i % 7 + 3 * (i % 101) - 150) {
            printf("saxpy: mismatch at %d got %g expected %d\n", i, y[i], i % 7 + 3 * (i % 101) - 150);
            bad = 1;
        }
    free(x);
    free(y);
    if (!bad)
        puts("saxpy: ok");
    return bad;
}
