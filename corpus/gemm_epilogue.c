/* BLAS-like product: a scalar accumulator inside the i,j loops, scaled and merged with the old result. */
#include <stdio.h>
#include <stdlib.h>

#ifndef M
#define M 47
#endif
#ifndef N
#define N 61
#endif
#ifndef K
#define K 79
#endif

void gemm(int m, int n, int k, float alpha, const float *restrict a, const float *restrict b, float beta,
          float *restrict c)
{
    int i, j, l;

#pragma mdh
    {
        for (i = 0; i < m; i++) {
            for (j = 0; j < n; j++) {
                float acc = 0.0f;

                /* inner product of a row and a column */
                for (l = 0; l < k; l++)
                    acc = a[i * k + l] * b[l * n + j] + acc;

                c[i * n + j] = alpha * acc + beta * c[i * n + j];
            }
        }
    }
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3.0f;
}

int main(void)
{
    const size_t depth = K, n_a = M * depth, n_b = depth * N, cells = (size_t)M * N, step = cells / 5000 + 1;
    float *a = calloc(n_a + 1, sizeof *a);
    float *b = calloc(n_b + 1, sizeof *b);
    float *c = calloc(cells + 1, sizeof *c);
    int bad = 0;

    if (!a || !b || !c)
        return 2;
    for (size_t x = 0; x < n_a; x++)
        a[x] = small(x);
    for (size_t x = 0; x < n_b; x++)
        b[x] = small(11 * x + 4);
    for (size_t x = 0; x < cells; x++)
        c[x] = small(x + 100);

    gemm(M, N, K, 2.0f, a, b, -3.0f, c);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        const size_t row = x / N, col = x % N;
        long expected = -3 * (long)small(x + 100);
        for (size_t l = K; l-- > 0;)
            expected += 2 * (long)a[row * K + l] * (long)b[l * N + col];
        if (c[x] != (float)expected) {
            printf("gemm_epilogue: mismatch at (%zu,%zu) got %g expected %ld\n", row, col, c[x], expected);
            bad = 1;
        }
    }
    free(a);
    free(b);
    free(c);
    if (!bad)
        puts("gemm_epilogue: ok");
    return bad;
}
