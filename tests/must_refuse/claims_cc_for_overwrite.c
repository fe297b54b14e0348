//! refused
/* a cell that all iterations write, declared as independent */
void f(int n, int m, int *a, int *w)
{
#pragma mdh combine_ops(cc, cc)
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            if (a[i * m + j] > 0)
                w[j] = a[i * m + j];
}
