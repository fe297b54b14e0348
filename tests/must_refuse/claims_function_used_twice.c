//! refused
/* the promised function is not all that the loop does */
static int join(int x, int y)
{
    return 3 * x * y + x + y;
}

int f(int n, int *a)
{
    int s = 0;
#pragma mdh combine_ops(pw(join))
    for (int i = 0; i < n; i++)
        s = join(s, a[i]) - s;
    return s;
}
