#define TWICE(i, n, body) for (int i = 0; i < (n); i++) { body } for (int i = 0; i < (n); i++) { body }

void f(float *y, int n)
{
#pragma mdh
    TWICE(i, n, y[i] *= 2;) //! MDH005
}
