//! ordered: i
/* minimum and maximum in turns on one variable */
int f(int n, int *a, int *b)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { if (a[i] > s) s = a[i]; if (b[i] < s) s = b[i]; }
    return s;
}
