//! ordered: i
/* the array of subscripts changes */
void f(int n, int *p, int *a)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        a[i] = p[a[i]];
        p[i] = a[i];
    }
}
