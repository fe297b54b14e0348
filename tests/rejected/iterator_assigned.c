/* The iterator moves by data. */
void f(float *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        y[i] = 0;
        if (y[i + 1] > 0)
            i += 1; //! MDH210
    }
}
