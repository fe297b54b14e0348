//! ordered: i
/* all iterations read the cell that the first one writes */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = a[i] - a[0];
}
