void f(float *y, int n)
{
#pragma mdh
#ifdef LONG
    for (int i = 0; i < 2 * n; i++) {
#else
    for (int i = 0; i < n; i++) { //! MDH005
#endif
        y[i] = 0;
    }
}
