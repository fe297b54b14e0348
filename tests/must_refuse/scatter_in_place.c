//! ordered: i
/* reads and writes one array at unknown places */
void f(int n, int *p, int *a)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[p[i]] = a[i] + 1;
}
