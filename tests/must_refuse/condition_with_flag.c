//! refused
/* the loop's condition reads a flag that the body sets */
int f(const int *x, int n)
{
    int found = 0;
#pragma mdh
    for (int i = 0; i < n && !found; i++)
        if (x[i] == 7)
            found = 1;
    return found;
}
