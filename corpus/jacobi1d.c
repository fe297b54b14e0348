/* One Jacobi step in one dimension: interior points 1..n, inclusive bounds. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 100003
#endif

void jacobi1d(double *next, const double *prev, int n, double c)
{
    int i;

#pragma mdh
    for (i = 1; i <= n; i++)
        next[i] = c * (prev[i - 1] + prev[i] + prev[i + 1]);
}

int main(void)
{
    const int n = N;
    double *prev = malloc((n + 2) * sizeof *prev);
    double *next = malloc((n + 2) * sizeof *next);
    int i, bad = 0;

    if (!prev || !next)
        return 2;
    for (i = 0; i < n + 2; i++) {
        prev[i] = (double)((unsigned)i * 7919u % 31u) - 15.0;
        next[i] = -77.0;
    }
    jacobi1d(next, prev, n, 0.25);
    for (i = 0; i < n + 2 && !bad; i++) {
        double expected = -77.0;            /* the border is left alone */
        if (i > 0 && i <= n) {
            expected = 0.0;
            for (int d = -1; d <= 1; d++)
                expected += prev[i + d];
            expected /= 4.0;
        }
        if (next[i] != expected) {
            printf("jacobi1d: mismatch at %d got %g expected %g\n", i, next[i], expected);
            bad = 1;
        }
    }
    free(prev);
    free(next);
    if (!bad)
        puts("jacobi1d: ok");
    return bad;
}
