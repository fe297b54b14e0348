float g(float x);

void f(float *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = g(y[i]); //! MDH204
}
