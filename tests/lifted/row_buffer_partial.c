//! i: host_loop
//! > j: cc
//! > j: cc
/* The first element of the buffer is that of the row before. */
void f(int n, int m, float x[n][m], float y[n][m], float row[m])
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 1; j < m; j++)
            row[j] = x[i][j] * 2.0f;
        for (int j = 0; j < m; j++)
            y[i][j] = row[j];
    }
}
