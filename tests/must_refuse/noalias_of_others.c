//! guarded: a, b
/* the clause speaks of other pointers */
void f(int *a, int *b, int *c, int n)
{
#pragma mdh noalias(a, c)
    for (int i = 0; i < n; i++)
        a[i] = b[i] + c[i];
}
