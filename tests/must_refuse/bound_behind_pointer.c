//! guarded: a, q
/* the bound is read through a pointer */
void f(int *a, int *q)
{
#pragma mdh
    for (int i = 0; i < *q; i++)
        a[i] = 0;
}
