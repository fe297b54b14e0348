//! ordered: i, j
/* n - 1 and 0 of the next row are the same cell */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 1; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i * (n - 1) + j] = a[(i - 1) * (n - 1) + j] * 2 + 1;
}
