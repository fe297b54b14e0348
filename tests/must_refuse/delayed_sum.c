//! ordered: i
/* an average with the previous sum */
double f(int n, double *a)
{
    double s = 0, old = 1;
#pragma mdh
    for (int i = 0; i < n; i++) { double t = s; s = (s + old) / 2 + a[i]; old = t; }
    return s;
}
