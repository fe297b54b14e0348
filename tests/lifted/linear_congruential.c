//! i: ps(linear)
/* a random number generator whose numbers are stored */
unsigned f(int n, unsigned *a)
{
    unsigned s = 1;
#pragma mdh
    for (int i = 0; i < n; i++) { s = s * 1664525u + 1013904223u; a[i] = s >> 16; }
    return s;
}
