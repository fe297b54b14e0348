/* A batch of matrix products; the batch is one more concatenated dimension. Arrays of three dimensions, one scalar
   accumulator, everything as variable-length array parameters with const and restrict. */
#include <stdio.h>
#include <stdlib.h>

#ifndef B
#define B 5
#endif
#ifndef M
#define M 10
#endif
#ifndef N
#define N 53
#endif
#ifndef K
#define K 64
#endif

void batched_matmul(size_t batches, size_t m, size_t n, size_t depth,
                    float out[restrict batches][m][n],
                    float lhs[restrict batches][m][depth],
                    float rhs[restrict batches][depth][n])
{
#pragma mdh
    for (size_t b = 0; b < batches; b++) {
        /* one product per batch */
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; j < n; j++) {
                float acc = 0.0f; // stays in a register
                for (size_t k = 0; k < depth; k++) {
                    acc += lhs[b][i][k] * rhs[b][k][j];
                }
                out[b][i][j] = acc;
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
    float (*lhs)[M][K] = malloc(sizeof(float[B][M][K]));
    float (*rhs)[K][N] = malloc(sizeof(float[B][K][N]));
    float (*out)[M][N] = malloc(sizeof(float[B][M][N]));
    int bad = 0;

    if (!lhs || !rhs || !out)
        return 2;
    for (size_t b = 0; b < B; b++) {
        for (size_t x = 0; x < (size_t)M * K; x++)
            lhs[b][x / K][x % K] = small(b * M * K + x);
        for (size_t x = 0; x < (size_t)K * N; x++)
            rhs[b][x / N][x % N] = small(b * K * N + 7 * x + 1);
        for (size_t x = 0; x < (size_t)M * N; x++)
            out[b][x / N][x % N] = -99.0f;
    }

    batched_matmul(B, M, N, K, out, lhs, rhs);

    for (size_t b = 0; b < B && !bad; b++)
        for (size_t j = 0; j < N && !bad; j++)
            for (size_t i = 0; i < M && !bad; i++) {
                long expected = 0;
                for (size_t k = 0; k < K; k++)
                    expected += (long)small((b * M + i) * K + k) * (long)small(b * K * N + 7 * (k * N + j) + 1);
                if (out[b][i][j] != (float)expected) {
                    printf("bmatmul: mismatch at [%zu][%zu][%zu] got %g expected %ld\n",
                           b, i, j, out[b][i][j], expected);
                    bad = 1;
                }
            }
    free(lhs);
    free(rhs);
    free(out);
    if (!bad)
        puts("bmatmul: ok");
    return bad;
}
