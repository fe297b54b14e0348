//! ordered: i
/* an averaging function */
static float mean(float x, float y)
{
    return (x + y) * 0.5f;
}

float f(int n, float *a)
{
    float s = 1;
#pragma mdh
    for (int i = 0; i < n; i++) s = mean(s, a[i]);
    return s;
}
