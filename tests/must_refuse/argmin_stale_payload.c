//! ordered: i
/* the payload counts improvements */
int f(int n, int *a)
{
    int s = 100, at = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] < s) { s = a[i]; at = at + 1; }
    return at;
}
