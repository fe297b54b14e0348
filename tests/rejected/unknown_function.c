void f(float *y, const float *x, int n)
{
//!next MDH405
#pragma mdh combine_ops(pw(maximum))
    for (int i = 0; i < n; i++)
        y[0] = y[0] > x[i] ? y[0] : x[i];
}
