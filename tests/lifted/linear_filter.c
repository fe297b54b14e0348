//! i: ps(linear)
/* an IIR filter */
float f(int n, float *a, float *b)
{
    float s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { s = 0.5f * s + a[i]; b[i] = s; }
    return s;
}
