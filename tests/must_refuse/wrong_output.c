//! refused
/* the directive names another output */
void f(int n, int *a, int *w)
{
#pragma mdh out(a)
    for (int i = 0; i < n; i++)
        w[i] = a[i] + 1;
}
