//! refused
/* the running sum is stored, the directive says reduction */
int f(int n, int *a, int *b)
{
    int s = 0;
#pragma mdh combine_ops(pw(+))
    for (int i = 0; i < n; i++) {
        s += a[i];
        b[i] = s;
    }
    return s;
}
