/* Matrix product, annotated in the spelling of the CC'23 MDH paper. */
#include <stdio.h>
#include <stdlib.h>

#ifndef M
#define M 67
#endif
#ifndef N
#define N 71
#endif
#ifndef K
#define K 73
#endif

void matmul(float (*restrict C)[N], float (*restrict A)[K], float (*restrict B)[N])
{
    #pragma mdh( C[i][j] : ++ , ++ , + )
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < K; k++)
                C[i][j] += A[i][k] * B[k][j];
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3.0f;
}

int main(void)
{
    float (*A)[K] = malloc(sizeof(float[M][K]));
    float (*B)[N] = malloc(sizeof(float[K][N]));
    float (*C)[N] = calloc(M, sizeof(float[N]));
    const size_t cells = (size_t)M * N, step = cells / 5000 + 1;
    int bad = 0;

    if (!A || !B || !C)
        return 2;
    for (size_t i = 0; i < M; i++)
        for (size_t k = 0; k < K; k++)
            A[i][k] = small(i * K + k);
    for (size_t k = 0; k < K; k++)
        for (size_t j = 0; j < N; j++)
            B[k][j] = small(5 * (k * N + j) + 2);

    matmul(C, A, B);

    /* all cells of a small result, a sample with both ends of a large one */
    for (size_t c = 0; c < cells && !bad; c = c + step < cells || c + 1 == cells ? c + step : cells - 1) {
        size_t i = c / N, j = c % N;
        long expected = 0;
        for (size_t k = K; k-- > 0;)
            expected += (long)A[i][k] * (long)B[k][j];
        if (C[i][j] != (float)expected) {
            printf("matmul: mismatch at [%zu][%zu] got %g expected %ld\n", i, j, C[i][j], expected);
            bad = 1;
        }
    }
    free(A);
    free(B);
    free(C);
    if (!bad)
        puts("matmul: ok");
    return bad;
}
