//! ordered: i
/* |s - x| is not associative */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = s > a[i] ? s - a[i] : a[i] - s;
    return s;
}
