/* The subscript wraps around. */
void f(float *y, const float *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = x[i % 4];        //! MDH214
}
