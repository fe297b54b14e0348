/* The same, in a loop that becomes a `while` over a wide variable. */
void f(int n, int *restrict w1)
{
#pragma mdh
    for (unsigned i = 0; i < n; i++) {
        int t8 = 5;
        for (int k = i - 1; k >= 0; k--) {
            t8 = (t8 * 3 + k) % 17;
        }
        w1[i] = t8;
    }
}
