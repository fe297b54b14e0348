//! ordered: i, j
/* moves left in place, twice the distance apart: each pass needs the one before */
void f(int n, int m, int *a)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m - 1; j++)
            a[j] = a[j + 1] - a[j];
}
