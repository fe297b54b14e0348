//! refused
/* rand() has a state */
#include <stdlib.h>

void f(int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = rand();
}
