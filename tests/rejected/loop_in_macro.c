#define LOOP(i, n) for (int i = 0; i < (n); i++)

void f(float *y, int n)
{
#pragma mdh
    LOOP(i, n) { //! MDH005
        y[i] = 0;
    }
}
