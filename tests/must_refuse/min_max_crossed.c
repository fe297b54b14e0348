//! ordered: i
/* the minimum is clipped by the maximum so far */
int f(int n, int *a)
{
    int s = 100, m = -100;
#pragma mdh
    for (int i = 0; i < n; i++) { if (a[i] > m) m = a[i]; if (a[i] < s) s = a[i] < m ? a[i] : m - 1; }
    return s;
}
