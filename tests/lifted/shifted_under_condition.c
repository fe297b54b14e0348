//! i: cc
/* Without the condition the last iteration would touch y[n]. */
void f(float *y, const float *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        if (i < n - 1)
            y[i + 1] = x[i];
}
