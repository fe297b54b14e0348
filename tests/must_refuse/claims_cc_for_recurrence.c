//! refused
/* a recurrence declared as independent */
void f(int n, int *a)
{
#pragma mdh combine_ops(cc)
    for (int i = 1; i < n; i++)
        a[i] = a[i - 1] * 2;
}
