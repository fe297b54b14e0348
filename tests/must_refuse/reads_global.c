//! refused
/* the function reads an array that the nest writes */
int y[100];

static int before(int i)
{
    return y[i - 1];
}

void f(const int *x, int n)
{
#pragma mdh
    for (int i = 1; i < n; i++)
        y[i] = before(i) + x[i];
}
