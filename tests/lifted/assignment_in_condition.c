//! i: ps(linear)
/* an assignment inside of a condition carries a value on */
void f(const int *x, int *y, int n, int t0)
{
    int t = 0;
#pragma mdh
    for (int i = 0; i < n; i++)
        if ((t = x[i] - t) > t0)
            y[i] = t;
}
