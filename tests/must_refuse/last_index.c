//! ordered: i
/* the last place that fulfils a condition wins, not the greatest or least value */
int f(int n, int *a)
{
    int s = -1;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] > 3) s = a[i] - i;
    return s;
}
