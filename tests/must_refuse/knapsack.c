//! ordered: i, j
/* items in turn; each weight from smaller weights */
void f(int n, int w, int c, int *a, int *v)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = w - 1; j >= 3; j--)
            a[j] = a[j - 3] + v[i] > a[j] ? a[j - 3] + v[i] : a[j];
}
