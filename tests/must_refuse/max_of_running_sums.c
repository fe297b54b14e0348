//! ordered: i
/* the maximum of a sum that goes on from row to row */
void f(int n, int m, int *w, int a[n][m])
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < m; j++)
            w[0] += a[i][j];
        if (w[0] > w[1])
            w[1] = w[0];
    }
}
