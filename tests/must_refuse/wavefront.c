//! ordered: i, j
/* dynamic programming over a table */
void f(int n, int m, int a[n][m], int *x, int *y)
{
#pragma mdh
    for (int i = 1; i < n; i++)
        for (int j = 1; j < m; j++)
            a[i][j] = x[i] == y[j] ? a[i - 1][j - 1] + 1 : a[i - 1][j] > a[i][j - 1] ? a[i - 1][j] : a[i][j - 1];
}
