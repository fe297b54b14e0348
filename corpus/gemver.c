/* Two rank-one updates of a matrix, then x += beta A^T y + z and w += alpha A x with the updated A and x.
   Linearised matrix, no restrict: a run-time test has to tell the nine arrays apart. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 307
#endif

void gemver(int n, double alpha, double beta, double *A, const double *u1, const double *v1, const double *u2,
            const double *v2, double *w, double *x, const double *y, const double *z)
{
    int i, j;

#pragma mdh
    {
        /* A := A + u1 v1^T + u2 v2^T */
        for (i = 0; i < n; i++)
            for (j = 0; j < n; j++)
                A[i * n + j] = A[i * n + j] + u1[i] * v1[j] + u2[i] * v2[j];

        for (i = 0; i < n; i++) {
            for (j = 0; j < n; j++)
                x[i] += beta * A[j * n + i] * y[j];
            x[i] += z[i];
        }

        for (i = 0; i < n; i++)
            for (j = 0; j < n; j++)
                w[i] += alpha * A[i * n + j] * x[j];
    }
}

static double small(size_t n)
{
    return (double)((n * 2654435761u >> 9) % 7) - 3.0;
}

int main(void)
{
    enum { U1, V1, U2, V2, W, X, Y, Z, VECTORS };
    const long n = N;
    double *matrix = malloc(sizeof(double) * N * N);
    double *v[VECTORS];
    long *x = calloc(N, sizeof *x), *w = calloc(N, sizeof *w);
    int bad = 0;

    if (!matrix || !x || !w)
        return 2;
    for (size_t c = 0; c < (size_t)N * N; c++)
        matrix[c] = small(c);
    for (int k = 0; k < VECTORS; k++) {
        if (!(v[k] = malloc(sizeof(double) * N)))
            return 2;
        for (long i = 0; i < n; i++)
            v[k][i] = small(1000u * (k + 1) + i);
    }

    gemver(N, 2.0, -1.0, matrix, v[U1], v[V1], v[U2], v[V2], v[W], v[X], v[Y], v[Z]);

    /* in integers, each matrix row once for x; then once more for w */
    for (long i = 0; i < n; i++)
        x[i] = (long)(small(6000 + i) + v[Z][i]);
    for (int pass = 0; pass < 2; pass++)
        for (long r = 0; r < n; r++) {
            if (pass)
                w[r] = (long)small(5000 + r);
            for (long c = 0; c < n; c++) {
                long a = (long)(small(r * n + c) + v[U1][r] * v[V1][c] + v[U2][r] * v[V2][c]);
                if (matrix[r * n + c] != (double)a && !bad) {
                    printf("gemver: mismatch at A(%ld,%ld) got %g expected %ld\n", r, c, matrix[r * n + c], a);
                    bad = 1;
                }
                if (pass)
                    w[r] += 2 * a * x[c];
                else
                    x[c] -= a * (long)v[Y][r];
            }
        }
    for (long i = 0; i < n && !bad; i++)
        if (v[X][i] != (double)x[i] || v[W][i] != (double)w[i]) {
            printf("gemver: mismatch at %ld got (%g, %g) expected (%ld, %ld)\n", i, v[X][i], v[W][i], x[i], w[i]);
            bad = 1;
        }
    for (int k = 0; k < VECTORS; k++)
        free(v[k]);
    free(matrix);
    free(x);
    free(w);
    if (!bad)
        puts("gemver: ok");
    return bad;
}
