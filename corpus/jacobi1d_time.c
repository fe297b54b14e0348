/* Relaxation of a line over time: from a to b and from b to a in every step; the ends keep their values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 5003
#endif
#ifndef T
#define T 10
#endif

void jacobi1d_time(int steps, int n, double *a, double *b)
{
    int t, i;

#pragma mdh
    for (t = 0; t < steps; t++) {
        for (i = 1; i <= n - 2; i++)
            b[i] = 0.25 * (a[i - 1] + 2.0 * a[i] + a[i + 1]);
        for (i = 1; i <= n - 2; i++)
            a[i] = 0.25 * (b[i - 1] + 2.0 * b[i] + b[i + 1]);
    }
}

int main(void)
{
    const int n = N;
    double *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b), *line = malloc(n * sizeof *line);
    int bad = 0;

    if (!a || !b || !line)
        return 2;
    for (int i = 0; i < n; i++)
        a[i] = b[i] = line[i] = (double)((unsigned)i * 7919u % 31u) - 15.0;
    jacobi1d_time(T, n, a, b);
    for (int t = 0; t < 2 * T; t++) {           /* in one array, the old left neighbour kept aside */
        double left = line[0];
        for (int i = 1; i < n - 1; i++) {
            const double old = line[i];
            line[i] += (left - old) / 4.0 + (line[i + 1] - old) / 4.0;
            left = old;
        }
    }
    for (int i = 0; i < n && !bad; i++)
        if (!(fabs(a[i] - line[i]) <= 1e-11)) {
            printf("jacobi1d_time: mismatch at %d got %g expected %g\n", i, a[i], line[i]);
            bad = 1;
        }
    free(a);
    free(b);
    free(line);
    if (!bad)
        puts("jacobi1d_time: ok");
    return bad;
}
