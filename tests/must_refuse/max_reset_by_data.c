//! ordered: i
/* a sentinel in the data starts the maximum anew */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { if (a[i] < 0) s = 0; if (a[i] > s) s = a[i]; }
    return s;
}
