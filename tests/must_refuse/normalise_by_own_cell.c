//! ordered: i
/* the pivot is overwritten midway */
void f(int n, int k, float *a)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = a[i] / a[k];
}
