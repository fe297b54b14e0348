/* The lower triangle of a matrix, row behind row without gaps. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 211
#endif

void triangular_pack(int n, const float (*restrict a)[n], float *restrict packed)
{
    int i, j;

#pragma mdh
    for (i = 0; i < n; i++)
        for (j = 0; j <= i; j++)
            packed[i * (i + 1) / 2 + j] = a[i][j];
}

int main(void)
{
    float (*a)[N] = malloc(sizeof(float[N][N])), *packed = malloc(N * (N + 1) / 2 * sizeof *packed);
    const float *at = packed;
    int bad = 0;

    if (!a || !packed)
        return 2;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            a[i][j] = (float)((unsigned)(i * N + j) % 9973u);
    triangular_pack(N, (const float (*)[N])a, packed);
    for (int i = 0; i < N && !bad; i++)
        for (int j = 0; j <= i && !bad; j++, at++)
            if (*at != a[i][j]) {
                printf("triangular_pack: mismatch at [%d][%d] got %g expected %g\n", i, j, *at, a[i][j]);
                bad = 1;
            }
    free(a);
    free(packed);
    if (!bad)
        puts("triangular_pack: ok");
    return bad;
}
