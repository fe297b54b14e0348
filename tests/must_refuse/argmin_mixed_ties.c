//! ordered: i
/* ties are last on even places and first on odd ones */
int f(int n, int *a)
{
    int s = 100, at = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (i % 2 ? a[i] < s : a[i] <= s) { s = a[i]; at = i; }
    return at;
}
