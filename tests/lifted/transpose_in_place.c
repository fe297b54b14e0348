//! i: host_loop
//! > j: cc
/* a[j][i] is read by one iteration and written by another. */
void f(int n, float a[n][n])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i][j] = a[j][i];
}
