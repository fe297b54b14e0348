//! ordered: i
/* s to the power of x */
#include <math.h>

double f(int n, double *a)
{
    double s = 2;
#pragma mdh
    for (int i = 0; i < n; i++) s = pow(s, a[i]);
    return s;
}
