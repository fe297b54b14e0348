//! refused
/* runs to the end of a string */
void f(const int *x, int *y)
{
#pragma mdh
    for (int i = 0; x[i] != 0; i++)
        y[i] = x[i];
}
