//! i: cc
//! i: cc
/* Every cell takes the old value of its neighbour: all are read before any is written. */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 1; i < n - 1; i++)
        a[i] = a[i + 1] * 3;
}
