//! ordered: i
/* the new value is divided by the accumulator */
double f(int n, double *a)
{
    double s = 1.0;
#pragma mdh
    for (int i = 0; i < n; i++) s = a[i] / s;
    return s;
}
