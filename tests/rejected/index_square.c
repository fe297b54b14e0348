/* The subscript is a product of iterators. */
void f(float *y, const float *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = x[i * i];        //! MDH214
}
