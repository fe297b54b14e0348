//! ordered: i
/* bins that stop at a limit */
void f(int n, int *x, int *h)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        if (h[x[i]] < 3)
            h[x[i]] += 1;
}
