//! guarded: a, c
/* bytes may be those of the ints */
void f(int *a, const unsigned char *c, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = c[i];
}
