//! i: cc, j: pw(+)
/* The bound is computed inside the nest, differently in each iteration. */
void f(float *w, const float *a, int n, int k)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        int last = i < k ? i : k;
        for (int j = 0; j < last; j++)
            w[i] += a[j];
    }
}
