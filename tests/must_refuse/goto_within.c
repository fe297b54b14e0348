//! refused
/* skips a statement */
void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        if (x[i] < 0)
            goto next;
        y[i] = x[i];
next:
        y[i] += 1;
    }
}
