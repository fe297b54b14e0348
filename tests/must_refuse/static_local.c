//! refused
/* the function keeps a value between calls */
static int next(int x)
{
    static int last;
    last = last / 2 + x;
    return last;
}

void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = next(x[i]);
}
