//! ordered: i
/* the sum is halved in each step */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = (s >> 1) + a[i];
    return s;
}
