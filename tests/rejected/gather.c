/* The subscript is read from memory. */
void f(float *y, const float *x, const int *index, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = x[index[i]];     //! MDH214
}
