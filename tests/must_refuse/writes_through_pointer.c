//! refused
/* the function writes to what its argument points to */
static int take(int *s, int x)
{
    *s = *s / 2 + x;
    return *s;
}

int f(const int *x, int *y, int n)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = take(&s, x[i]);
    return s;
}
