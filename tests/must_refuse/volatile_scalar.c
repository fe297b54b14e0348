//! refused
/* a device register is read in each iteration */
extern volatile int status;

void f(int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = status;
}
