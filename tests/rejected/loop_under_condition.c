void f(int m, int n, float y[m][n], int c)
{
#pragma mdh
    for (int i = 0; i < m; i++)
        if (c > i) //! MDH211
            for (int j = 0; j < n; j++)
                y[i][j] = 0;
}
