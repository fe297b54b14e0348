//! i: cc, j: pw(+)
/* The inner bound depends on the outer iterator. */
void f(float *w, const float *a, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            w[i] += a[j];
}
