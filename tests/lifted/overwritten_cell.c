//! i: host_loop
//! > j: cc
/* Every iteration of i writes the same cells. */
void f(float *y, const float *x, int n, int m)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            y[j] = x[i];
}
