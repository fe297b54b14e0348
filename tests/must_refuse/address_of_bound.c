//! guarded: y, n
/* y points to the loop's bound */
int f(int n)
{
    int *y = &n;
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = 0;
    return n;
}
