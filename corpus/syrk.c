/* Symmetric rank-k update of the lower triangle, C = alpha A A^T + beta C, with size_t iterators and linearised
   arrays; scaling and products in one nest. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 107
#endif
#ifndef P
#define P 79
#endif

void syrk(size_t n, size_t p, double alpha, const double *restrict A, double beta, double *restrict C)
{
#pragma mdh
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j <= i; j++) {
            double dot = 0.0;
            for (size_t k = 0; k < p; k++)
                dot += A[i * p + k] * A[j * p + k];
            C[i * n + j] = alpha * dot + beta * C[i * n + j];
        }
    }
}

static double small(size_t n)
{
    return (double)((n * 2654435761u >> 9) % 7) - 3.0;
}

int main(void)
{
    const size_t cells = (size_t)N * N, step = cells / 5000 + 1;
    double *a = malloc(sizeof(double) * N * P);
    double *c = malloc(sizeof(double) * N * N);
    int bad = 0;

    if (!a || !c)
        return 2;
    for (size_t x = 0; x < (size_t)N * P; x++)
        a[x] = small(x + 2);
    for (size_t x = 0; x < cells; x++)
        c[x] = small(x + 41);

    syrk(N, P, -2.0, a, 5.0, c);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t i = x / N, j = x % N;
        long expected = (long)small(x + 41);
        if (i >= j) {
            expected *= 5;
            for (size_t k = P; k-- > 0;)
                expected -= 2 * (long)a[j * P + k] * (long)a[i * P + k];
        }
        if (c[x] != (double)expected) {
            printf("syrk: mismatch at (%zu,%zu) got %g expected %ld\n", i, j, c[x], expected);
            bad = 1;
        }
    }
    free(a);
    free(c);
    if (!bad)
        puts("syrk: ok");
    return bad;
}
