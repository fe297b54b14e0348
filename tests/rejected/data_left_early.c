void f(int n, float *x)
{
#pragma mdh data copy(x)
    {
#pragma mdh
        for (int i = 0; i < n; i++) x[i] = x[i] * 2;
        if (n > 7)
            return;  //! MDH419
    }
}
