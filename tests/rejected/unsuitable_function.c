static double add(float a, float b)
{
    return a + b;
}

void f(float *y, const float *x, int n)
{
//!next MDH406
#pragma mdh combine_ops(pw(add))
    for (int i = 0; i < n; i++)
        y[0] = add(y[0], x[i]);
}
