//! i: ps(linear)
/* a linear recurrence */
float f(int n, float *a)
{
    float s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = 0.9f * s + 0.1f * a[i];
    return s;
}
