//! ordered: i
/* the accumulator moves only if the change is large */
float f(int n, float *a)
{
    float s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] - s > 0.5f || s - a[i] > 0.5f) s = a[i];
    return s;
}
