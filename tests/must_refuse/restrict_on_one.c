//! guarded: a, b
/* restrict on a third pointer promises nothing about the others */
void f(int *a, int *b, int *restrict c, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = b[i] + c[i];
}
