/* `!=` with unsigned numbers: in the later rows the loop would run past its bound and wrap around. */
void f(float *y, unsigned n)
{
#pragma mdh
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 2 * i; j != n; j++) //! MDH210
            y[j] += 1;
}
