#ifndef SIZE
#error SIZE is not set //! MDH002
#endif

void f(float *y)
{
#pragma mdh
    for (int i = 0; i < SIZE; i++)
        y[i] = 0;
}
