//! ordered: i
/* the last element that fulfils a condition wins */
int f(int n, int *a)
{
    int s = -1;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] > 3) s = a[i];
    return s;
}
