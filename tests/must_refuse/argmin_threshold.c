//! ordered: i
/* only improvements by more than one count */
int f(int n, int *a)
{
    int s = 100, at = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] < s - 1) { s = a[i]; at = i; }
    return at;
}
