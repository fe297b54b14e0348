//! ordered: i, j
/* a row from the row above, in one array */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 1; i < n; i++)
        for (int j = n - 1; j > 0; j--)
            a[j] = a[j] + a[j - 1];
}
