float maximum(float a, float b);

void f(float *y, const float *x, int n)
{
//!next MDH405
#pragma mdh combine_ops(pw(maximum))
    for (int i = 0; i < n; i++)
        y[0] = maximum(y[0], x[i]);
}

float maximum(float a, float b)
{
    return a > b ? a : b;
}
