//! ordered: i
/* each sum decides what the other adds */
int f(int n, int *a, int *b)
{
    int s = 0, t = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { s += a[i] * (t & 1); t += s * b[i]; }
    return t;
}
