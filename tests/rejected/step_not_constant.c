void f(float *y, int n)
{
#pragma mdh
    for (int i = 1; i < n; i *= 2) //! MDH210
        y[i] = 0;
}
