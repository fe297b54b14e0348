/* Where the pointer ends is needed, but only values of scalars are handed on. */
float *f(float *y, const float *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) //! MDH006
        *y++ = x[i];
    return y;
}
