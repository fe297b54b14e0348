//! ordered: i, j
/* a triangle that reads the rows above */
void f(int n, int a[n][n])
{
#pragma mdh
    for (int i = 1; i < n; i++)
        for (int j = 0; j < i; j++)
            a[i][j] = a[i - 1][j] + a[j][j];
}
