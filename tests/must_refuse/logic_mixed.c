//! ordered: i
/* && and || on one flag */
int f(int n, int *a, int *b)
{
    int s = 1;
#pragma mdh
    for (int i = 0; i < n; i++) { s = s && a[i] > 0; s = s || b[i] > 5; }
    return s;
}
