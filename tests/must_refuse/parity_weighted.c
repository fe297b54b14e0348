//! ordered: i
/* every second kept term is subtracted: the sign flips by data */
int f(int n, int *a)
{
    int s = 0, sign = 1;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] > 0) { s += sign * a[i]; sign = -sign; }
    return s;
}
