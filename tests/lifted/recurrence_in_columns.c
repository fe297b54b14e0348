//! j: host_loop
//! > i: cc
/* Recurrences along columns: neighbours in a row are computed together, row by row. */
void f(int n, int m, unsigned x[m][n], unsigned a[m][n])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 1; j < m; j++)
            x[j][i] = a[j][i] - 3u * x[j - 1][i];
}
