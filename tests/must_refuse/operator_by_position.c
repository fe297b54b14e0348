//! ordered: i
/* even places add, odd ones multiply */
int f(int n, int *a)
{
    int s = 1;
#pragma mdh
    for (int i = 0; i < n; i++) if (i % 2) s *= a[i]; else s += a[i];
    return s;
}
