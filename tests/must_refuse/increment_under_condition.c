//! refused
/* a counter moves by data, inside of an expression */
void f(const int *x, int *y, int n)
{
    int k = 0;
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = x[i] > 0 ? x[k++] : 0;
}
