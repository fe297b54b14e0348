//! refused
/* the loop keeps the greatest */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh combine_ops(pw(min))
    for (int i = 0; i < n; i++)
        if (a[i] > s)
            s = a[i];
    return s;
}
