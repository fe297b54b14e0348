//! refused
/* the loop adds up, the directive says prefix sum */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh combine_ops(ps(+))
    for (int i = 0; i < n; i++)
        s += a[i];
    return s;
}
