//! i: cc
//! sequential
/* A part that lifts beside one that must run as it stands. */
void f(int n, float *a, float *b, const float *x)
{
#pragma mdh
    {
        for (int i = 0; i < n; i++)
            b[i] = x[i] * x[i];
        for (int i = 2; i < n; i++)
            a[i] = 0.5f * a[i - 1] - a[i - 2] * b[i];
    }
}
