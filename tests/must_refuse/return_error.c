//! refused
/* stops at the first bad element, after earlier ones were stored */
int f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        if (x[i] < 0)
            return 1;
        y[i] = x[i] * 2;
    }
    return 0;
}
