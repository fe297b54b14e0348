//! refused
/* the bound is a cell that the nest writes */
void f(const int *x, int *y)
{
#pragma mdh
    for (int i = 0; i < y[0]; i++)
        y[i] = x[i];
}
