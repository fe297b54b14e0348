//! refused
/* nobody knows what g does */
int g(int x);

void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = g(x[i]);
}
