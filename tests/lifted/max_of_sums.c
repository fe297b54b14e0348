//! i: cc, j: pw(+)
//! i: pw(max)
/* A maximum over rows of row sums: two nests, not one. */
int f(int n, int m, int a[n][m])
{
    int best = 0;
#pragma mdh
    for (int i = 0; i < n; i++) {
        int row = 0;
        for (int j = 0; j < m; j++)
            row += a[i][j];
        if (row > best)
            best = row;
    }
    return best;
}
