//! i: cc, j: cc
//! i: cc, j: cc
//! j: cc
/* Every row goes through one buffer, which holds the last row in the end. */
void f(int n, int m, float x[n][m], float y[n][m], float row[m])
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < m; j++)
            row[j] = x[i][j] * 2.0f;
        for (int j = 0; j < m; j++)
            y[i][j] = row[j] + row[m - 1 - j];
    }
}
