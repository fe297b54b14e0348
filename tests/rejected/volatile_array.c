void f(volatile float *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = 1; //! MDH006
}
