//! ordered: i
/* an average in a cell */
void f(int n, int m, float *w, float a[n][m])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            w[j] = (w[j] + a[i][j]) * 0.5f;
}
