void f(float *y, const float *x, int n)
{
    int k = 0;
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = x[k++]; //! MDH006
}
