void f(float *y, int n) //! MDH007
{
    for (int i = 0; i < n; i++)
        y[i] = 0;
}
