/* A linear recurrence is no reduction. */
float f(const float *a, int n, float x)
{
    float p = 0.0f;
#pragma mdh
    for (int i = 0; i < n; i++)
        p = p * x + a[i];       //! MDH207
    return p;
}
