//! ordered: i
/* adds an element at an unknown place of the same array to another one */
void f(int n, int *p, int *q, int *a)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[p[i]] += a[q[i]];
}
