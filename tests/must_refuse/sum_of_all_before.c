//! ordered: i, j
/* each cell the sum of all cells before it, in place */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 1; i < n; i++)
        for (int j = 0; j < i; j++)
            a[i] += a[j];
}
