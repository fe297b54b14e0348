//! refused
/* an atomic object is shared with other threads */
extern _Atomic int total;

void f(const int *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        total += x[i];
}
