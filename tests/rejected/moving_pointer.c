/* The pointer moves for some elements only. */
void f(float *y, const float *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        if (x[i] > 0)
            *y++ = x[i]; //! MDH006
}
