//! refused
/* iterates until the change is small */
int f(int *x, int n)
{
    int d = 2;
#pragma mdh
    while (d > 1) {
        d = 0;
        for (int i = 0; i < n; i++) {
            d += x[i] / 2;
            x[i] /= 2;
        }
    }
    return d;
}
