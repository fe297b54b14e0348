//! ordered: i
/* each value is squared */
float f(int n, float *a)
{
    float s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = s * s + a[i];
    return s;
}
