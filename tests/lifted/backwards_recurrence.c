//! i: ps(linear)
/* from the right to the left */
void f(int n, int *a)
{
#pragma mdh
    for (int i = n - 2; i >= 0; i--)
        a[i] = a[i] - 2 * a[i + 1];
}
