//! guarded: s, y
/* y points to the accumulator */
int f(const int *x, int n)
{
    int s = 0;
    int *y = &s;
#pragma mdh
    for (int i = 0; i < n; i++) {
        s += x[i];
        y[0] = s / 2;
    }
    return s;
}
