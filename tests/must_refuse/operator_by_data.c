//! ordered: i
/* the data choose between + and max */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] & 1) s += a[i]; else s = a[i] > s ? a[i] : s;
    return s;
}
