void f(int m, int n, float y[m][n])
{
#pragma mdh
    for (int i = 0; i < m; i++)
//!next MDH004
#pragma mdh
        for (int j = 0; j < n; j++)
            y[i][j] = 0;
}
