/* y += a x: point-wise, but the result reads its old value. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

void axpy(size_t n, float a, const float *x, float *y)
{
    size_t i;
#pragma mdh
    for (i = 0; i < n; ++i)
        y[i] += a * x[i];
}

int main(void)
{
    const size_t n = N;
    float *x = calloc(n + 1, sizeof *x);
    float *y = calloc(n + 1, sizeof *y);
    int bad = 0;

    if (!x || !y)
        return 2;
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(i % 41) - 20.0f;
        y[i] = (float)(i % 37);
    }
    axpy(n, 3.0f, x, y);
    for (size_t i = 0; i < n && !bad; i++) {
        long expected = (long)(i % 37) + 3 * ((long)(i % 41) - 20);
        if (y[i] != (float)expected) {
            printf("axpy: mismatch at %zu got %g expected %ld\n", i, y[i], expected);
            bad = 1;
        }
    }
    free(x);
    free(y);
    if (!bad)
        puts("axpy: ok");
    return bad;
}
