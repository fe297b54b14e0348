//! i: ps(linear)
/* a polynomial by Horner's rule */
float f(int n, float x, float *a)
{
    float s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = s * x + a[i];
    return s;
}
