void f(float *y, const float *x, const int *at, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        float t[4]; //! MDH006
        t[at[i]] = x[i];
        y[i] = t[0];
    }
}
