//! ordered: i
/* s -> x is not associative */
int f(int n, int *a)
{
    int s = 1;
#pragma mdh
    for (int i = 0; i < n; i++) s = !s || a[i] > 0;
    return s;
}
