#define END }

void f(float *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) { //! MDH005
        y[i] = 0;
    END
}
