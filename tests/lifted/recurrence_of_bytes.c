//! i: ps(linear)
/* Computed in int, kept modulo 256. */
void f(int n, unsigned char *x, const unsigned char *a)
{
    unsigned char s = 3;
#pragma mdh
    for (int i = 0; i < n; i++) {
        s = a[i] * s * 5 - x[i] + 1;
        x[i] = s;
    }
}
