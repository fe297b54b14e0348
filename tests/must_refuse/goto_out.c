//! refused
/* leaves both loops */
int f(const int *x, const int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (x[i] == y[j])
                goto found;
    return 0;
found:
    return 1;
}
