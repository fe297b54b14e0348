//! ordered: i
/* a filter that needs its last two values */
void f(int n, double *x, double *y)
{
#pragma mdh
    for (int i = 2; i < n; i++)
        y[i] = 0.25 * y[i - 1] + 0.5 * y[i - 2] + x[i];
}
