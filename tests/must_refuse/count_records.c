//! ordered: i
/* counts new maxima, each of which must beat the old one by the count */
int f(int n, int *a)
{
    int s = 0, m = -1000;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] > m + s) { m = a[i]; s++; }
    return s;
}
