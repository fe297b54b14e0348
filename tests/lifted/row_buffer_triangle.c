//! i: host_loop
//! > j: cc
//! > j: cc
/* The rows are of different lengths, so that the buffer keeps elements of several of them. */
void f(int n, float x[n][n], float y[n][n], float row[n])
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++)
            row[j] = x[i][j] * 2.0f;
        for (int j = 0; j < i; j++)
            y[i][j] = row[j] + 1.0f;
    }
}
