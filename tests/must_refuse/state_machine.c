//! ordered: i
/* the next state is chosen by state and symbol */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = s == 0 ? (a[i] == 1 ? 1 : 0) : s == 1 ? (a[i] == 2 ? 2 : 0) : (a[i] == 0 ? 0 : 1);
    return s;
}
