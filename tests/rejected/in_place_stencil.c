/* Gauss-Seidel: a cell needs its new left neighbour. */
void f(float *a, int n)
{
#pragma mdh
    for (int i = 1; i < n - 1; i++)
        a[i] = 0.5f * (a[i - 1] + a[i + 1]);    //! MDH207
}
