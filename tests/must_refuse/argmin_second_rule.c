//! ordered: i
/* ties go by the payload's old value */
int f(int n, int *a)
{
    int s = 100, at = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] < s || (a[i] == s && at % 2)) { s = a[i]; at = i; }
    return at;
}
