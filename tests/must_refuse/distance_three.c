//! ordered: i
/* three steps back */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 3; i < n; i++)
        a[i] = a[i] - a[i - 3] * 2;
}
