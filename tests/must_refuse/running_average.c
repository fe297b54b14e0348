//! ordered: i
/* each step halves the weight of all earlier values */
float f(int n, float *a)
{
    float s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = (s + a[i]) / 2;
    return s;
}
