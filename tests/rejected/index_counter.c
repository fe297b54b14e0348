/* The subscript is a counter that moves by data. */
void f(int *y, const int *x, int n, int p)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        if (x[i] > 0) {
            y[p] = x[i];        //! MDH214
            p = p + 1;
        }
}
