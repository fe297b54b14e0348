/* A directive may stand above a `while`, but the loop has to count. */
void f(float *y, int n)
{
    int i = 0;
#pragma mdh
    while (i < n) { //! MDH210
        y[i] = 0;
        i = 2 * i + 1;
    }
}
