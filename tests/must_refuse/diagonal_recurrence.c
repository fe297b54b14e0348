//! ordered: i, j
/* along the anti-diagonal */
void f(int n, int a[n][n])
{
#pragma mdh
    for (int i = 1; i < n; i++)
        for (int j = 0; j < n - 1; j++)
            a[i][j] = a[i - 1][j + 1] * 2 + 1;
}
