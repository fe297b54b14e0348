void f(float *y, int n, int s)
{
#pragma mdh
    for (int i = 0; i < n; i += s) { //! MDH210
        y[i] = 0;
        s++;
    }
}
