void f(float *y, int n)
{
//!next MDH407
#pragma mdh combine_ops(cc) combine_ops(cc)
    for (int i = 0; i < n; i++)
        y[i] = 0;
}
