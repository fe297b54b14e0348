//! ordered: i
/* parents of parents, in place */
void f(int n, int *p)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        p[i] = p[p[i]];
}
