//! t: host_loop
//! > i: cc
//! > i: cc
/* Jacobi over time: every step needs the one before. */
void f(float *a, float *b, int n, int steps)
{
#pragma mdh
    for (int t = 0; t < steps; t++) {
        for (int i = 1; i < n - 1; i++)
            b[i] = a[i - 1] + a[i + 1];
        for (int i = 1; i < n - 1; i++)
            a[i] = b[i];
    }
}
