//! ordered: i
/* Kahan: the compensation is what reassociation would destroy */
float f(int n, float *a)
{
    float s = 0, c = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { float y = a[i] - c; float t = s + y; c = (t - s) - y; s = t; }
    return s;
}
