//! refused
/* the loop adds, the directive says concatenation */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh combine_ops(cc)
    for (int i = 0; i < n; i++)
        s += a[i];
    return s;
}
