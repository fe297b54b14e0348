//!accept omp
/* The threads run already, and each of them would call the kernel. */
void f(float *y, int n)
{
#pragma omp parallel
    {
//!next MDH414
#pragma omp for
        for (int i = 0; i < n; i++)
            y[i] = 0;
    }
}
