void f(int n, const int *a, int *y)
{
    struct total { int zero, sum; };
    struct total t = { 0, 0 };
#pragma mdh
    //!next MDH212
    for (int i = 0; i < n; i++)
        t.sum += a[i];
    y[0] = t.sum;
}

/* members alone need no type */
void g(int n, const int *a, int *y)
{
    struct factor { int by, shift; } s = { 2, 1 };
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = a[i] * s.by;
}
