//! i: cc, j: cc
//! i: cc, j: pw(+)
//! j: cc
/* Rows from the last to the first, elements from the second on: the first row is what the buffer keeps. */
void f(int n, int m, int x[n][m], int *restrict y, int *restrict row)
{
#pragma mdh
    for (int i = n - 1; i >= 0; i--) {
        for (int j = m - 1; j >= 1; j--)
            row[j] = x[i][j] * i;
        for (int j = 1; j < m; j++)
            y[i] += row[j];
    }
}
