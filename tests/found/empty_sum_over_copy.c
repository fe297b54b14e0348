/* A cell is written, and later read, where the sum that follows is empty. */
void f(int n, int m, double *w1)
{
#pragma mdh
    for (int i = 2 * m - 1; i > -1; i--) {
        w1[i] = w1[i + n];
        for (int j = i + 1; j <= n - 1; j++) {
            w1[i] = (0 * w1[i]);
        }
    }
}
