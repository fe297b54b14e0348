//! ordered: k
/* every step needs the one before */
void f(int t, int n, float *a, float *b)
{
#pragma mdh
    for (int k = 0; k < t; k++) {
        for (int i = 1; i < n - 1; i++)
            b[i] = a[i - 1] + a[i + 1];
        for (int i = 1; i < n - 1; i++)
            a[i] = b[i];
    }
}
