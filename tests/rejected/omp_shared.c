//!accept omp
/* All threads write the one `t`. */
void f(float *restrict y, const float *restrict x, int n)
{
    float t;
//!next MDH412
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        t = x[i];
        y[i] = t * t;
    }
}
