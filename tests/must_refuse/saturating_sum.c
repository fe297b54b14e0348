//! ordered: i
/* saturation from above: (100 + 100) - 100 depends on the grouping */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { s += a[i]; if (s > 100) s = 100; }
    return s;
}
