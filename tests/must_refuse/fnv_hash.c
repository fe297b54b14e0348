//! ordered: i
/* xor, then multiply */
unsigned f(int n, unsigned char *a)
{
    unsigned s = 2166136261u;
#pragma mdh
    for (int i = 0; i < n; i++) { s ^= a[i]; s *= 16777619u; }
    return s;
}
