//! ordered: i
/* the sum is rotated in each step */
unsigned f(int n, unsigned *a)
{
    unsigned s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = ((s << 1) | (s >> 31)) + a[i];
    return s;
}
