//! scalar
//! i: ps(+)
/* The running sum is stored before it is updated. */
void f(int *out, const int *a, int n)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) {
        out[i] = s;
        s += a[i];
    }
}
