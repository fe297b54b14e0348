//! ordered: i
/* a ring buffer: i % 4 repeats */
void f(int n, int *a, int *r)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        r[i % 4] = a[i] - r[i % 4];
}
