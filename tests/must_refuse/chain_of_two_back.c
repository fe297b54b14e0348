//! ordered: i
/* b needs the a of this iteration, a the b of two before */
void f(int n, int *a, int *b)
{
#pragma mdh
    for (int i = 2; i < n; i++) {
        a[i] = b[i - 2] - a[i];
        b[i] = a[i] + b[i - 1];
    }
}
