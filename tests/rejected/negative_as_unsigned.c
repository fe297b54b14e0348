/* `i - 4` is compared as an unsigned number: for small `i` the inner loop runs almost for ever. */
void f(float *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (unsigned j = 0; j < i - 4; j++) //! MDH210
            y[j] += 1;
}
