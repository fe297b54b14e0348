//! i: host_loop
//! > j: ps(linear)
/* The running value goes on from row to row. */
void f(int n, int m, int out[n][m], int a[n][m])
{
    int s = 1;
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            s = a[i][j] - 2 * s;
            out[i][j] = s;
        }
}
