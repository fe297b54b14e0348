//! ordered: i
/* max and + on one variable */
int f(int n, int *a, int *b)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { if (a[i] > s) s = a[i]; s += b[i]; }
    return s;
}
