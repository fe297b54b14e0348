//! ordered: i
/* sqrt(s * s + x * x): only without rounding, and an int rounds */
#include <math.h>

int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = sqrt((double)s * s + (double)a[i] * a[i]);
    return s;
}
