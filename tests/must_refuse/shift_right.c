//! ordered: i
/* every cell gets the first one's value */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 1; i < n; i++)
        a[i] = a[i - 1];
}
