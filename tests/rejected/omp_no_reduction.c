//!accept omp
float f(const float *x, int n)
{
    float s = 0;
//!next MDH413
#pragma omp parallel for
    for (int i = 0; i < n; i++)
        s += x[i];
    return s;
}
