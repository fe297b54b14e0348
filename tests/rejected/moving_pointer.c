void f(float *y, const float *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        *y++ = x[i]; //! MDH006
}
