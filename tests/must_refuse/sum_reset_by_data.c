//! ordered: i
/* a segment's sum: zero in the data resets it */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { if (a[i] == 0) s = 0; s += a[i]; }
    return s;
}
