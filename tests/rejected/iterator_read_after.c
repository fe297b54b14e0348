void f(float *y, int n)
{
    int i;
#pragma mdh
    {
        for (i = 0; i < n; i++)
            y[i] = 0;
        y[0] = i; //! MDH210
    }
}
