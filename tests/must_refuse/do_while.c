//! refused
/* iterates until nothing changes */
int f(int *x, int n)
{
    int d;
#pragma mdh
    do {
        d = 0;
        for (int i = 0; i < n; i++)
            d |= x[i];
    } while (d < 0);
    return d;
}
