//! ordered: i
/* two arrays feed each other */
void f(int n, int *a, int *b)
{
#pragma mdh
    for (int i = 1; i < n; i++) {
        a[i] = b[i - 1] + 1;
        b[i] = a[i] * 2;
    }
}
