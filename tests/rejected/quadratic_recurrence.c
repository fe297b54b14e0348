/* The square of a variable is no linear recurrence. */
float f(const float *a, int n, float x)
{
    float p = 0.0f;
#pragma mdh
    for (int i = 0; i < n; i++)
        p = p * p + a[i];       //! MDH207
    return p;
}
