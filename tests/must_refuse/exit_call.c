//! refused
/* ends the program */
#include <stdlib.h>

void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        if (x[i] < 0)
            exit(1);
        y[i] = x[i];
    }
}
