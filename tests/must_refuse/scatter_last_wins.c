//! ordered: i
/* two elements may have the same place */
void f(int n, int *x, int *place, int *y)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[place[i]] = x[i];
}
