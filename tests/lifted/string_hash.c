//! i: ps(linear)
/* h * 31 + c */
unsigned f(int n, unsigned char *a)
{
    unsigned s = 7;
#pragma mdh
    for (int i = 0; i < n; i++) s = s * 31u + a[i];
    return s;
}
