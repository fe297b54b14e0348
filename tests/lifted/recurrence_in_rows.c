//! i: cc, j: ps(linear)
/* Rows are independent; each is a recurrence in place. */
void f(int n, int m, unsigned x[n][m], unsigned a[n][m])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 1; j < m; j++)
            x[i][j] = a[i][j] - 3u * x[i][j - 1];
}
