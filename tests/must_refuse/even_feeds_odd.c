//! ordered: i
/* 2 i is read where i wrote */
void f(int n, int *a)
{
#pragma mdh
    for (int i = 1; i < n; i++)
        a[2 * i] = a[i] + 1;
}
