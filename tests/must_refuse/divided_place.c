//! ordered: i
/* i / 2 repeats, the last one wins under a condition */
void f(int n, int *a, int *r)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        if (a[i] > 0)
            r[i / 2] = a[i];
}
