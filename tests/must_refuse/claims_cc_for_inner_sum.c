//! refused
/* the inner loop adds */
void f(int n, int m, int *a, int *w)
{
#pragma mdh combine_ops(i: cc, j: cc)
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            w[i] += a[i * m + j];
}
