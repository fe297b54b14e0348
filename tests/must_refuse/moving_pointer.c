//! refused
/* the pointer moves by data */
void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        if (x[i] > 0)
            *y++ = x[i];
}
