void f(float *y, int n, float (*g)(float))
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = g(y[i]); //! MDH204
}
