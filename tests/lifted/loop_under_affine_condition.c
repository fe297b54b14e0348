//! i: cc, j: pw(+)
/* A loop under a condition on an outer iterator. */
void f(int n, int m, int *a, const int *x)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        if (i < m) {
            for (int j = 0; j < n; j++)
                a[i] += x[j];
        }
    }
}
