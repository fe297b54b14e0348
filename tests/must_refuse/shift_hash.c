//! ordered: i
/* shift and xor (djb) */
unsigned f(int n, unsigned char *a)
{
    unsigned s = 5381u;
#pragma mdh
    for (int i = 0; i < n; i++) s = ((s << 5) + s) ^ a[i];
    return s;
}
