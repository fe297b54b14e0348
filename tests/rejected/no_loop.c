void f(float *y, int n)
{
//!next MDH004
#pragma mdh
    y[0] = n;
//!next MDH004
#pragma mdh
}
