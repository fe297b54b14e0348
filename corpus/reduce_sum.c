/* Sum of an array, old style: `s = s + x`, iterator and bound are longs declared at the top. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

double total(x, n)
    const double *x;
    long n;
{
    register long i;
    double s;

    s = 0.0;
#pragma mdh
    for (i = 0; i < n; i = i + 1)
        s = s + x[i];
    return s;
}

int main(void)
{
    long n = N, i, expected = 0;
    double *x = calloc(n + 1, sizeof *x), got;

    if (!x)
        return 2;
    for (i = 0; i < n; i++) {
        x[i] = (double)(2 * ((i * 37 + i / 5) % 19) - 17);
        expected += 2 * ((i * 37 + i / 5) % 19) - 17;
    }
    got = total(x, n);
    free(x);
    if (got != (double)expected) {
        printf("reduce_sum: mismatch at result got %g expected %ld\n", got, expected);
        return 1;
    }
    puts("reduce_sum: ok");
    return 0;
}
