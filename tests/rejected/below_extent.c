/* The stencil leaves the array at the left end. */
float a[100], b[100];

void f(void)
{
#pragma mdh
    for (int i = 0; i < 100; i++)
        b[i] = a[i - 1];        //! MDH303
}
