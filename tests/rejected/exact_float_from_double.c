/* Rounded to float in each step, and fp(exact) keeps every bit. */
float f(const double *a, int n)
{
    float s = 0.0f;
#pragma mdh fp(exact)
    for (int i = 0; i < n; i++)
        s += a[i];              //! MDH207
    return s;
}
