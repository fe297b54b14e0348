/* Forward substitution: L x = b with a lower triangular L; x itself holds the running sums. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 499
#endif

void trisolv(int n, double L[n][n], double x[n], double b[n])
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        x[i] = b[i];
        for (int j = 0; j < i; j++)
            x[i] -= L[i][j] * x[j];
        x[i] = x[i] / L[i][i];
    }
}

int main(void)
{
    const size_t n = N;
    double (*l)[N] = malloc(sizeof(double) * n * n);
    double *b = malloc(sizeof(double) * n), *x = malloc(sizeof(double) * n), *lx = calloc(n, sizeof(double));
    int bad = 0;

    if (!l || !b || !x || !lx)
        return 2;
    for (size_t i = 0; i < n; i++) {
        b[i] = (double)(i * 37 % 17) - 8.0;
        x[i] = 1e30;
        for (size_t j = 0; j < n; j++)      /* above the diagonal stands what must not be read */
            l[i][j] = i < j ? 1e30 : i == j ? 4.0 * N : (double)(((i * n + j) * 2654435761u >> 9) % 7) - 3.0;
    }

    trisolv(N, l, x, b);

    for (size_t j = 0; j < n; j++)
        for (size_t i = j; i < n; i++)
            lx[i] += l[i][j] * x[j];
    for (size_t i = 0; i < n && !bad; i++)
        if (!(fabs(lx[i] - b[i]) <= 1e-9 * (1.0 + fabs(b[i])))) {
            printf("trisolv: mismatch at equation %zu got %.17g expected %g\n", i, lx[i], b[i]);
            bad = 1;
        }
    free(l);
    free(b);
    free(x);
    free(lx);
    if (!bad)
        puts("trisolv: ok");
    return bad;
}
