//! i: cc
//! i: cc
/* A cell is read before a later iteration overwrites it. */
void f(float *a, int n)
{
#pragma mdh
    for (int i = 0; i < n - 2; i++)
        a[i] = 3.0f * a[i + 2];
}
