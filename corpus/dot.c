/* Dot product: the only dimension is reduced. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

float dot(const float *x, const float *y, size_t n)
{
    float sum = 0.0f;
#pragma mdh
    for (size_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* -1, 0 or 1: every partial sum is an exact float. */
static float unit(size_t n)
{
    return (float)((n * 2654435761u >> 7) % 3) - 1.0f;
}

int main(void)
{
    const size_t n = N;
    float *x = calloc(n + 1, sizeof *x);
    float *y = calloc(n + 1, sizeof *y);
    long expected = 0;

    if (!x || !y)
        return 2;
    for (size_t i = 0; i < n; i++) {
        x[i] = unit(i);
        y[i] = unit(3 * i + 1);
    }
    float got = dot(x, y, n);
    for (size_t i = n; i-- > 0;)
        expected += (long)x[i] * (long)y[i];
    free(x);
    free(y);
    if (got != (float)expected) {
        printf("dot: mismatch at result got %g expected %ld\n", got, expected);
        return 1;
    }
    puts("dot: ok");
    return 0;
}
