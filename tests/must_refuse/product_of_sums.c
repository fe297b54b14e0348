//! ordered: i
/* * over i of + over j in one cell */
void f(int n, int m, int *w, int a[n][m])
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < m; j++)
            w[0] += a[i][j];
        w[0] *= 2;
    }
}
