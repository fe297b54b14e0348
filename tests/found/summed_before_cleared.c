/* Cells of row i are cleared after all sums into it have been made. */
void f(int n, int m, unsigned w1[n][m + n][m + 3], unsigned long *a3)
{
#pragma mdh
    for (int i = 1; i < n; i++) {
        for (int j = n - 1; j > i; j--) {
            for (int k = 1; k < m; k += 2) {
                w1[i][j][k] = 0;
                for (int l = 0; l < 3; l++) {
                    w1[j][k][l] -= (2 * a3[k]);
                }
            }
        }
    }
}
