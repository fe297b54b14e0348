//! ordered: i
/* two accumulators change places */
int f(int n, int *a)
{
    int s = 0, t = 1;
#pragma mdh
    for (int i = 0; i < n; i++) { int old = s; s = t + a[i]; t = old; }
    return s;
}
