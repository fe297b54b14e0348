//! ordered: i
/* clears bits of the new value: x & ~s */
unsigned f(int n, unsigned *a)
{
    unsigned s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = a[i] & ~s;
    return s;
}
