//! refused
/* ends the program by an assertion */
#include <assert.h>

void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        assert(x[i] >= 0);
        y[i] = x[i];
    }
}
