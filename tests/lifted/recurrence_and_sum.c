//! i: ps(linear)
//! i: ps(+)
/* Each running value has a scan of its own. */
void f(int n, int *x, int *y, const int *a)
{
    int s = 0, t = 0;
#pragma mdh
    for (int i = 0; i < n; i++) {
        s = 2 * s + a[i];
        t += a[i];
        x[i] = s;
        y[i] = t;
    }
}
