/* The parser does not know this extension; functions without a directive may use it. */
int other(int x)
{
    return x ?: 1;
}

void f(int *y, int n)
{
    int one = n ?: 1; //! MDH003
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = one;
}
