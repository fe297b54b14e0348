//! ordered: i
/* a decoded value feeds the next, halved */
int f(int n, int *a, int *b)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { s = s / 2 + a[i]; b[i] = s; }
    return s;
}
