//! ordered: i
/* computed in double, rounded to float in each step */
float f(int n, float *a)
{
    float s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = 0.9 * s + a[i];
    return s;
}
