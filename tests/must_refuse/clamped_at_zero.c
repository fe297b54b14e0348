//! ordered: i
/* the running sum is not allowed below zero (CUSUM) */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { s += a[i]; s = s < 0 ? 0 : s; }
    return s;
}
