//! refused
/* stops when the sum is large enough */
int f(const int *x, int n)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n && s < 100; i++)
        s += x[i];
    return s;
}
