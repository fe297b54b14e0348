//! guarded: a, factor
/* a may point to the factor */
float factor;

void f(float *a, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = factor * a[i];
}
