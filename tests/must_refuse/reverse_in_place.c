//! ordered: i
/* the second half reads what the first half wrote */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = a[n - 1 - i] + 1;
}
