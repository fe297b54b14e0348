void f(long double *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = 0; //! MDH212
}
