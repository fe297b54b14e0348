void f(float *y, const float *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        float t[4]; //! MDH006
        t[0] = x[i];
        y[i] = t[0];
    }
}
