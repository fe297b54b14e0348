//! i: cc, k: ps(linear)
/* Horner's rule at many points. */
void f(int n, int m, int *y, const int *x, const int *c)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        int s = 0;
        for (int k = 0; k < m; k++)
            s = s * x[i] + c[k];
        y[i] = s;
    }
}
