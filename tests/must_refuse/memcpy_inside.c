//! refused
/* memory is moved by a library function */
#include <string.h>

void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        memcpy(&y[i], &x[i], sizeof *y);
}
