void f(float *y, int n)
{
//!next MDH401
#pragma mdh combine_op(cc)
    for (int i = 0; i < n; i++)
        y[i] = 0;
}
