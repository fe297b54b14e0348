//! ordered: i
/* the remainder after a maximum */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = (s > a[i] ? s : a[i]) % 7;
    return s;
}
