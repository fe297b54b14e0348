//! i: cc, j: cc, k: pw(+)
/* Bounds from two outer iterators, by steps and downwards. */
void f(int n, int m, int a[n][n], const int *x)
{
#pragma mdh
    for (int i = 0; i < n; i += 2)
        for (int j = n - 1; j >= i; j--)
            for (int k = i; k <= j; k++)
                a[i][j] += x[k];
}
