void f(float *y)
{
#pragma mdh
    for (int i = 0;; i++) //! MDH210
        y[i] = 0;
}
