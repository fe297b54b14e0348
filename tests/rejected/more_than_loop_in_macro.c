#define ALL_AND_FIRST(i, n, body) for (int i = 0; i < (n); i++) { body } y[0] = 1

void f(float *y, int n)
{
#pragma mdh
    ALL_AND_FIRST(i, n, y[i] = 0;); //! MDH005
}
