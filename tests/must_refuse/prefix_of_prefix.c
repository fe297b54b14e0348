//! ordered: i
/* a scan in place whose result is scaled */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 1; i < n; i++)
        a[i] = 2 * (a[i] + a[i - 1]);
}
