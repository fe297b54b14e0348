/* Modified Gram-Schmidt: A = Q R with orthonormal columns of Q and upper triangular R; A is used up. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef M
#define M 149
#endif
#ifndef N
#define N 127
#endif

void gramschmidt(int m, int n, float A[m][n], float R[n][n], float Q[m][n])
{
    int i, j, k;
    float nrm;

#pragma mdh
    for (k = 0; k < n; k++) {
        nrm = 0.0f;
        for (i = 0; i < m; i++)
            nrm += A[i][k] * A[i][k];
        R[k][k] = sqrtf(nrm);
        for (i = 0; i < m; i++)
            Q[i][k] = A[i][k] / R[k][k];

        /* take the new direction out of the columns that remain */
        for (j = k + 1; j < n; j++) {
            R[k][j] = 0.0f;
            for (i = 0; i < m; i++)
                R[k][j] += Q[i][k] * A[i][j];
            for (i = 0; i < m; i++)
                A[i][j] = A[i][j] - Q[i][k] * R[k][j];
        }
    }
}

static float given(size_t i, size_t j)
{
    return (float)(((i * N + j) * 2654435761u >> 9) % 7) - 3.0f + (i % N == j ? 4.0f * N : 0.0f);
}

int main(void)
{
    const size_t m = M, n = N, cells = m * n, step = cells / 5000 + 1, pairs = n * n, stride = pairs / 5000 + 1;
    const double scale = 4.0 * N + 3.0;
    float *a = malloc(sizeof(float) * (cells + 1)), *q = malloc(sizeof(float) * (cells + 1));
    float *r = malloc(sizeof(float) * (pairs + 1));
    int bad = 0;

    if (!a || !q || !r)
        return 2;
    for (size_t x = 0; x < cells; x++) {
        a[x] = given(x / n, x % n);
        q[x] = -88.0f;
    }
    for (size_t x = 0; x < pairs; x++)
        r[x] = -88.0f;

    gramschmidt(M, N, (float (*)[N])a, (float (*)[N])r, (float (*)[N])q);

    /* Q R is what was given */
    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t i = x / n, j = x % n;
        double got = 0.0;
        for (size_t k = 0; k <= j; k++)
            got += (double)q[i * n + k] * r[k * n + j];
        if (!(fabs(got - given(i, j)) <= 1e-5 * scale)) {
            printf("gramschmidt: mismatch at (%zu,%zu) got %g expected %g\n", i, j, got, given(i, j));
            bad = 1;
        }
    }
    /* the columns of Q are orthonormal; nothing is written below the diagonal of R */
    for (size_t x = 0; x < pairs && !bad; x = x + stride < pairs || x + 1 == pairs ? x + stride : pairs - 1) {
        const size_t j = x / n, k = x % n;
        double got = 0.0;
        for (size_t i = m; i-- > 0;)
            got += (double)q[i * n + j] * q[i * n + k];
        if (!(fabs(got - (j == k)) <= 1e-3) || (k < j && r[j * n + k] != -88.0f)) {
            printf("gramschmidt: mismatch at columns (%zu,%zu) product %g, R %g\n", j, k, got,
                   r[j * n + k]);
            bad = 1;
        }
    }
    free(a);
    free(q);
    free(r);
    if (!bad)
        puts("gramschmidt: ok");
    return bad;
}
