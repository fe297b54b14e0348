//! i: ps(linear)
/* two steps back in steps of two */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 2; i < n; i += 2)
        a[i] = a[i - 2] * 3 - a[i];
}
