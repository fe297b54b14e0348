//! refused
/* every access counts */
void f(volatile int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = 1;
}
