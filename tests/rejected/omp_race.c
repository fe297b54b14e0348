//!accept omp
/* The iterations are claimed to be independent. */
void f(float *y, const float *x, int n)
{
//!next MDH412
#pragma omp parallel for
    for (int i = 1; i < n; i++)
        y[i] = (y[i - 1] + x[i]) / 2; //! MDH207
}
