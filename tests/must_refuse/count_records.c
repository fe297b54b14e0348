//! ordered: i
/* counts new maxima: the count depends on the maximum so far */
int f(int n, int *a)
{
    int s = 0, m = -1000;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] > m) { m = a[i]; s++; }
    return s;
}
