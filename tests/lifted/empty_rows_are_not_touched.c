//! i: cc, j: ps(linear)
/* Where a row is empty, its cell is neither read nor written. */
void f(int n, int m, unsigned *w, const unsigned a[n][m])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            w[2 * i] = a[i][j] - 3u * w[2 * i];
}
