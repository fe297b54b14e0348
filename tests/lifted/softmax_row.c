//! i: cc, j: pw(+)
//! i: cc, j: cc
/* A scalar carries the row's sum from one inner loop to the next. */
void f(int n, int m, float y[n][m], float x[n][m])
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        float s = 0.0f;
        for (int j = 0; j < m; j++)
            s += x[i][j];
        for (int j = 0; j < m; j++)
            y[i][j] = x[i][j] / s;
    }
}
