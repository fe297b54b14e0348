//! ordered: i
/* a random number generator */
unsigned f(int n, unsigned *a)
{
    unsigned s = 1;
#pragma mdh
    for (int i = 0; i < n; i++) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; a[i] = s; }
    return s;
}
