//! ordered: i
/* neighbours change places */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 0; i < n - 1; i++)
        if (a[i] > a[i + 1]) {
            int t = a[i];
            a[i] = a[i + 1];
            a[i + 1] = t;
        }
}
