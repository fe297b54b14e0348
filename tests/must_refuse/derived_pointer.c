//! guarded: a, p
/* p points into a, one element on */
void f(int *a, int n)
{
    int *p = a + 1;
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = p[i] * 2;
}
