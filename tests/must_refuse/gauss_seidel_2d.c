//! ordered: i, j
/* in both directions */
void f(int n, float a[n][n])
{
#pragma mdh
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            a[i][j] = (a[i - 1][j] + a[i][j - 1] + a[i + 1][j] + a[i][j + 1]) * 0.25f;
}
