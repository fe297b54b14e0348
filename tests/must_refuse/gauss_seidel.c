//! ordered: i
/* left neighbours are new, right ones old */
void f(int n, float *a)
{
#pragma mdh
    for (int i = 1; i < n - 1; i++)
        a[i] = (a[i - 1] + a[i + 1]) * 0.5f;
}
