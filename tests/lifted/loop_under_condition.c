//! i: cc, j: cc
void f(int m, int n, float y[m][n], int c)
{
#pragma mdh
    for (int i = 0; i < m; i++)
        if (c > i)
            for (int j = 0; j < n; j++)
                y[i][j] = 0;
}
