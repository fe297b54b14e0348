/* Loops side by side over a triangle; a plane is read beyond the one that is written. */
void f(int n, int m, double w1[m + 1][m + 1][m + 1], int *a2, int *w4, double w5[m][m])
{
#pragma mdh
    for (int i = 0; i <= m - 1; i++) {
        for (int j = 0; j <= m - 1; j++) {
            for (long l = 0; l < m; l++) {
                w1[j][0][l] = 0;
            }
            for (int k = 0; k < j + 1; k++) {
                for (int l = 0; l < 4; l++) {
                    w4[i + 1] = ((w4[i] - w4[i + 2]) + a2[i]);
                }
                for (int l = 1; l < n - 1; l++) {
                    w5[i][j] += a2[2 * k];
                }
                for (long l = 0; l < m; l++) {
                    w1[j][k][l] = a2[l];
                    w1[j][k][l] = (w1[j + 1][k + 1][l + 1] - a2[k + 2]);
                }
            }
        }
    }
}
