//! refused
/* nobody knows what g does */
void f(const int *x, int *y, int n, int (*g)(int))
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = g(x[i]);
}
