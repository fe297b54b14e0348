//! ordered: k
/* the intermediate vertices in turn */
void f(int n, int a[n][n])
{
#pragma mdh
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                a[i][j] = a[i][k] + a[k][j] < a[i][j] ? a[i][k] + a[k][j] : a[i][j];
}
