void f(float *y, const float *x, int n)
{
    float t;
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = (t = x[i]) * t; //! MDH006
}
