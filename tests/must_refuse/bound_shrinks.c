//! refused
/* the bound changes in the body */
void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        y[i] = x[i];
        if (x[i] == 7)
            n--;
    }
}
