//! ordered: i
/* not beyond the double of the old maximum */
int f(int n, int *a)
{
    int s = 1;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] > s && a[i] < 2 * s) s = a[i];
    return s;
}
