static int calls;

static float count(float x)
{
    calls++;
    return x;
}

void f(float *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = count(y[i]); //! MDH204
}
