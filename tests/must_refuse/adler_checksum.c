//! ordered: i
/* modulo after each step, and the second sum adds the first */
unsigned f(int n, unsigned char *a)
{
    unsigned s = 1, b = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { s = (s + a[i]) % 65521u; b = (b + s) % 65521u; }
    return (b << 16) | s;
}
