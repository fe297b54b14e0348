//! refused
/* the loop multiplies */
int f(int n, int *a)
{
    int s = 1;
#pragma mdh combine_ops(pw(+))
    for (int i = 0; i < n; i++)
        s *= a[i];
    return s;
}
