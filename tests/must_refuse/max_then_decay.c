//! ordered: i
/* the maximum sinks by one where it is not exceeded */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = a[i] > s ? a[i] : s - 1;
    return s;
}
