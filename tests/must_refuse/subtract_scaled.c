//! ordered: i
/* the subtrahend reads the accumulator */
float f(int n, float *a)
{
    float s = 1.0f;
#pragma mdh
    for (int i = 0; i < n; i++) s = s - a[i] * s;
    return s;
}
