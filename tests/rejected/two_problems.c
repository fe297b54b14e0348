#include <stdio.h>

void f(float *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        puts("step"); //! MDH204
        y[i] = 0;
        if (i == 7)
            break; //! MDH205
    }
}
