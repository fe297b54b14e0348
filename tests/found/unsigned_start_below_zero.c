/* A loop that starts at `i - 1`, which is -1 as an `int` and a large number before the conversion. */
void f(int m, int *w10)
{
#pragma mdh
    for (unsigned long i = 0; i < m; i++) {
        for (int j = i - 1; j >= 0; j--) {
            w10[j] += i;
        }
    }
}
