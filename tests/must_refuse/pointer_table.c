//! refused
/* an array of pointers to scalars */
void f(int *p[], int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        *p[i] = i;
}
