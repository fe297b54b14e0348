/* One flat array as n x m and as m x n. */
void f(float *y, const float *x, int n, int m)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            y[i * m + j] = x[i * m + j] + x[j * n + i];     //! MDH214
}
