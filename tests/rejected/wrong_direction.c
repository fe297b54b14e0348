void f(float *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i--) //! MDH210
        y[i] = 0;
}
