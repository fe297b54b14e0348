//! ordered: i
/* s += a * s */
float f(int n, float *a)
{
    float s = 1;
#pragma mdh
    for (int i = 0; i < n; i++) s += a[i] * s;
    return s;
}
