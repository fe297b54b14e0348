//! refused
/* assembly */
void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        __asm__ volatile("" ::: "memory");
        y[i] = x[i];
    }
}
