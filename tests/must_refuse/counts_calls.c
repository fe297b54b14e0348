//! refused
/* the function counts its calls */
static int calls;

static int count(int x)
{
    calls++;
    return x + calls;
}

void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = count(x[i]);
}
