//! ordered: i
/* the state is halved or tripled */
unsigned f(int n, unsigned *a)
{
    unsigned s = 27;
#pragma mdh
    for (int i = 0; i < n; i++) { a[i] = s; s = s % 2u ? 3u * s + 1u : s / 2u; }
    return s;
}
