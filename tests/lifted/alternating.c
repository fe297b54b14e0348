//! i: ps(linear)
/* the sign of every term depends on how many follow */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = a[i] - s;
    return s;
}
