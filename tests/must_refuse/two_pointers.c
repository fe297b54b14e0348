//! guarded: a, b
/* a may be b + 1 */
void f(int *a, int *b, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = b[i] * 2;
}
