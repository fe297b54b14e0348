//! ordered: i
/* the compensated sum with a branch */
double f(int n, double *a)
{
    double s = 0, c = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { double t = s + a[i]; if (s >= a[i]) c += (s - t) + a[i]; else c += (a[i] - t) + s; s = t; }
    return s + c;
}
