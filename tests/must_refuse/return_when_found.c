//! refused
/* leaves the function */
int f(const int *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        if (x[i] == 7)
            return i;
    return -1;
}
