//! refused
/* output in order */
#include <stdio.h>

void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        y[i] = x[i];
        printf("%d\n", x[i]);
    }
}
