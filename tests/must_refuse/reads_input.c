//! refused
/* input in order */
#include <stdio.h>

void f(int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = getchar();
}
