//! ordered: i
/* the first match, remembered in a flag */
int f(int n, int *a)
{
    int s = 0, found = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (!found && a[i] > 3) { found = 1; s = a[i]; }
    return s;
}
