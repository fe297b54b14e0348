//! ordered: i
/* the same with a conditional expression */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = s + a[i] > 255 ? 255 : s + a[i];
    return s;
}
