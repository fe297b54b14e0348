void f(float *y, unsigned n)
{
#pragma mdh
    for (unsigned i = n; i >= 0; i--) //! MDH210
        y[i] = 0;
}
