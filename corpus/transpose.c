/* A matrix transposed: rows become columns. */
#include <stdio.h>
#include <stdlib.h>

#ifndef M
#define M 61
#endif
#ifndef N
#define N 157
#endif

void transpose(int m, int n, const float a[restrict m][n], float b[restrict n][m])
{
#pragma mdh
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            b[j][i] = a[i][j];
}

int main(void)
{
    float (*a)[N] = malloc(sizeof(float[M][N])), (*b)[M] = malloc(sizeof(float[N][M]));
    int bad = 0;

    if (!a || !b)
        return 2;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            a[i][j] = (float)((i * 31 + j * 17) % 8191);
    transpose(M, N, (const float (*)[N])a, b);
    for (int x = 0; x < M * N && !bad; x++)     /* where the cells lie, one after the other */
        if ((&b[0][0])[x] != (&a[0][0])[x % M * N + x / M]) {
            printf("transpose: mismatch at [%d][%d] got %g\n", x / M, x % M, (&b[0][0])[x]);
            bad = 1;
        }
    free(a);
    free(b);
    if (!bad)
        puts("transpose: ok");
    return bad;
}
