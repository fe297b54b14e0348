//! ordered: i
/* appends a bit */
unsigned f(int n, unsigned *a)
{
    unsigned s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = (s << 1) | (a[i] & 1u);
    return s;
}
