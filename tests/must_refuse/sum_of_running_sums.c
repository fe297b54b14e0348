//! ordered: i
/* t adds the running s: a second-order scan */
int f(int n, int *a, int *b)
{
    int s = 0, t = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { s += a[i]; t += s * b[i]; }
    return t;
}
