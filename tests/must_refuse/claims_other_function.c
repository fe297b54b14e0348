//! refused
/* another function than the one that the loop calls */
static int join(int x, int y)
{
    return x > y ? x : y;
}

static int other(int x, int y)
{
    return 2 * x + y;
}

int f(int n, int *a)
{
    int s = 0;
#pragma mdh combine_ops(pw(join))
    for (int i = 0; i < n; i++)
        s = other(s, a[i]);
    return s;
}
