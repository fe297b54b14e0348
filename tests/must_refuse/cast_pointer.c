//! refused
/* the array is read as another type */
void f(int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = ((short *)y)[i];
}
