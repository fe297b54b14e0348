//! i: ps(linear)
/* a function of the file whose laws nobody promised */
static int join(int x, int y)
{
    return 2 * x + y;
}

int f(int n, int *a)
{
    int s = 1;
#pragma mdh
    for (int i = 0; i < n; i++) s = join(s, a[i]);
    return s;
}
