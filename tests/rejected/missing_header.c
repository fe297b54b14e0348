/* The header does not exist. */
#include "no_such_header_of_mdh.h" //! MDH002

void f(float *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = 0;
}
