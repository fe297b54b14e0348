//! ordered: i
/* a value is added if it is above the sum so far */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] > s) s += a[i];
    return s;
}
