//! refused
/* an assignment inside of a condition */
void f(const int *x, int *y, int n, int t0)
{
    int t;
#pragma mdh
    for (int i = 0; i < n; i++)
        if ((t = x[i]) > t0)
            y[i] = t;
}
