//! ordered: i
/* the carry is replaced by data, not combined */
int f(int n, int *a, int *b)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { s = a[i] > 2 ? a[i] : s - 1; b[i] = s; }
    return s;
}
