/* Linear recurrence with varying coefficients, x[i] from x[i - 1]. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 50021
#endif

void linear_recurrence(long n, const double *a, const double *b, double *x)
{
    long i;

#pragma mdh
    for (i = 1; i < n; i++)
        x[i] = a[i] * x[i - 1] + b[i];
}

int main(void)
{
    const long n = N;
    double *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b), *x = malloc(n * sizeof *x);
    int bad = 0;

    if (!a || !b || !x)
        return 2;
    for (long i = 0; i < n; i++) {
        a[i] = 0.25 * (double)(i % 7 - 3);      /* some are zero, none beyond 3/4 */
        b[i] = (double)(i % 11 - 5);
        x[i] = -77.0;
    }
    x[0] = 12.0;
    linear_recurrence(n, a, b, x);
    for (long i = 0; i < n && !bad; i++) {      /* unrolled from the back, until the products vanish */
        double expected = 0.0, product = 1.0;
        long j = i;
        for (; j > 0 && product != 0.0 && i - j < 200; j--) {
            expected += product * b[j];
            product *= a[j];
        }
        if (j == 0)
            expected += product * 12.0;
        if (!(fabs(x[i] - expected) <= 1e-11)) {
            printf("linear_recurrence: mismatch at %ld got %g expected %g\n", i, x[i], expected);
            bad = 1;
        }
    }
    free(a);
    free(b);
    free(x);
    if (!bad)
        puts("linear_recurrence: ok");
    return bad;
}
