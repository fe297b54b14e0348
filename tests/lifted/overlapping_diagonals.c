//! i: host_loop
//! > j: cc
/* i + j is the same for many iterations. */
void f(float *y, const float *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            y[i + j] += x[i];
}
