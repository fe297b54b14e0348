//! refused
/* the iterations after it do not take place */
int f(const int *x, int n)
{
    int at = -1;
#pragma mdh
    for (int i = 0; i < n; i++)
        if (x[i] == 7) {
            at = i;
            break;
        }
    return at;
}
