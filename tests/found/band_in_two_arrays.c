/* Two arrays are written along a band, one or the other by a condition on iterators. */
void f(int m, unsigned *w1, unsigned w2[m][m][m + 1])
{
#pragma mdh
    for (int i = 0; i < m; i += 2) {
        for (int j = 0; j <= m - 1; j++) {
            for (int k = j; k < j + 2; k++) {
                if ((i < j)) {
                    w1[(i * m + j) * (m + 1) + k] += 1;
                } else {
                    w2[i][j][k] = 0;
                }
            }
        }
    }
}
