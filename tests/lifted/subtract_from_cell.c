//! i: cc, j: ps(linear)
/* a reduction into a cell with an operator that is none */
void f(int n, int m, int *w, int a[n][m])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            w[i] = a[i][j] - w[i];
}
