//! refused
/* a linear recurrence declared as a sum */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh combine_ops(pw(+))
    for (int i = 0; i < n; i++)
        s = 2 * s + a[i];
    return s;
}
