/* Only the user knows whether `join` is associative and commutative. */
static double join(double a, double b)
{
    double c = a;
    if (b > 1.0)
        c = a * b;
    return c;
}

double f(const double *a, int n)
{
    double s = 1.0;
#pragma mdh
    for (int i = 0; i < n; i++)
        s = join(s, a[i]);      //! MDH207
    return s;
}
