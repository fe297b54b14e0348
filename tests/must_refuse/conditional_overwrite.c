//! ordered: i
/* where the data say so; the last of them wins */
void f(int n, int m, int *w, int a[n][m])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            if (a[i][j] > 0)
                w[j] = a[i][j];
}
