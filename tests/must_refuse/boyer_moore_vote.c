//! ordered: i
/* majority vote: a candidate and its count */
int f(int n, int *a)
{
    int s = 0, c = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { if (c == 0) s = a[i]; c += a[i] == s ? 1 : -1; }
    return s;
}
