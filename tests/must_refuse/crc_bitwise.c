//! ordered: i
/* a cyclic redundancy check, one bit at a time */
unsigned f(int n, unsigned char *a)
{
    unsigned s = 0xffffffffu;
#pragma mdh
    for (int i = 0; i < n; i++) { s ^= a[i]; s = s & 1u ? (s >> 1) ^ 0xedb88320u : s >> 1; }
    return s;
}
