//! ordered: i
/* is everything equal to the comparison so far */
int f(int n, int *a)
{
    int s = 1;
#pragma mdh
    for (int i = 0; i < n; i++) s = s == a[i];
    return s;
}
