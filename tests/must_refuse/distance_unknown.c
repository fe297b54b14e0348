//! ordered: i
/* how far back is known at run time only */
void f(int n, int d, int *a)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i + d] = a[i] * 2 + 1;
}
