//! refused
/* the pointer changes in the nest */
void f(int *x, int *y, int n)
{
    int *p;
#pragma mdh
    for (int i = 0; i < n; i++) {
        p = i % 2 ? x : y;
        p[i] = i;
    }
}
