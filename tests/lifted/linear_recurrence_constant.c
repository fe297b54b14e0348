//! i: ps(linear)
/* a cell needs its new left neighbour */
void f(int n, float *a)
{
#pragma mdh
    for (int i = 1; i < n; i++)
        a[i] = 0.5f * a[i - 1] + 1.0f;
}
