/* The counter moves for some elements only. */
void f(float *y, const float *x, int n)
{
    int k = 0;
#pragma mdh
    for (int i = 0; i < n; i++)
        if (x[i] > 0)
            y[k++] = x[i]; //! MDH006
}
