/* Matrix product with all three matrices transposed, in single precision. */
#ifndef M
#define M 61
#endif
#ifndef N
#define N 59
#endif
#ifndef K
#define K 83
#endif

void matmul_transposed(float *restrict c, const float *restrict a, const float *restrict b, int m, int n, int kk)
{
#pragma mdh
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < kk; k++)
                c[j * m + i] += a[k * m + i] * b[j * kk + k];
}
