//! ordered: i
/* the remainder of a signed sum: (-3) % 5 is -3, and terms have both signs */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = (s + a[i]) % 5;
    return s;
}
