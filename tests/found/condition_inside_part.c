/* A wavefront: the second cell is written in a part of the band, in another way where data say so. */
void f(int n, int *a3, int w4[n][n], int *a5, int *a6, int *a8)
{
#pragma mdh
    for (int i = 1; i < n - 1; i++) {
        for (int j = n - 2; j >= 1; j--) {
            int t1 = 0;
            w4[i][j - 1] = (t1 - a5[i * (n - 1) + j]);
            w4[j][i + 1] = (a6[i] + a3[i]);
            if ((i > a8[i])) {
                w4[j][i + 1] = a5[(i - 1) * (n - 1) + j];
            }
        }
    }
}
