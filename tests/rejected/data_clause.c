void f(int n, float *x)
{
//!next MDH401 MDH418
#pragma mdh data present(x) copy(y)
    {
#pragma mdh
        for (int i = 0; i < n; i++) x[i] = x[i] * 2;
    }
}
