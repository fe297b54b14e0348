//! ordered: i
/* reads one array at unknown places while it is written */
void f(int n, int *p, int *a)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = a[p[i]] + 1;
}
