//! ordered: i, j
/* the cell depends on i + j alone, and each write reads it */
void f(int n, int *a, int *b)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i + j] = b[i] - a[i + j];
}
