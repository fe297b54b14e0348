//! guarded: a, q
/* the factor is read through a pointer */
void f(float *a, float *q, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = a[i] * *q;
}
