/* `i - 1` is 4294967295 where `i` is 0, which a `long` keeps: the inner loop runs four thousand million times. */
void f(int n, long *s)
{
#pragma mdh
    for (unsigned i = 0; i < n; i++) {
        for (long k = i - 1; k >= 0; k--) //! MDH210
            s[0] += 1;
    }
}
