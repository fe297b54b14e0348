//! refused
/* memory from the heap */
#include <stdlib.h>

void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = malloc(x[i]) != 0;
}
