int f(const int *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        if (x[i] == 7)
            goto found; //! MDH205
    return 0;
found:
    return 1;
}
