//! ordered: i
/* the running sum is cut off */
int f(int n, int *a, int *b)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { s += a[i]; if (s > 9) s = 9; b[i] = s; }
    return s;
}
