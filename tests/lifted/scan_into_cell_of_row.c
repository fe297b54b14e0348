//! i: cc, j: ps(+)
/* The running value is stored at every point, and its last one in a cell of the row. */
void f(int *restrict total, int *restrict prefix, const int *restrict x, int n, int m)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            total[i] += x[i * m + j];
            prefix[i * m + j] = total[i];
        }
}
