//! ordered: k
/* elimination */
void f(int n, double a[n][n])
{
#pragma mdh
    for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++)
            for (int j = k + 1; j < n; j++)
                a[i][j] -= a[i][k] * a[k][j] / a[k][k];
}
