/* A histogram with computed bins. */
void f(int *count, const unsigned char *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        count[x[i]] += 1;       //! MDH214
}
