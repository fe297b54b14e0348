typedef struct { double at[3], mass; } body;

void f(const body *restrict b, double *restrict y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = b[i].mass; //! MDH006
}
