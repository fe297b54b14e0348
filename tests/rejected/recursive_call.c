static int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

void f(int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = fib(i); //! MDH204
}
