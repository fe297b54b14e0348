//! guarded: a, b
/* a pointer to const may point to what another pointer writes */
void f(int *a, const int *b, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = b[n - 1 - i];
}
