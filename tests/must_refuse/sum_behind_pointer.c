//! guarded: a, q
/* the sum is kept behind a pointer into the array */
void f(int *a, int *q, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        *q += a[i];
}
