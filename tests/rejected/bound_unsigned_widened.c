/* `i - 1` is 4294967295 where `i` is 0: compared as a `long`, it stays so large. */
void f(int n, long *s)
{
#pragma mdh
    for (unsigned i = 0; i < n; i++) {
        for (long k = 0; k < i - 1; k++) //! MDH210
            s[0] += 1;
    }
}
