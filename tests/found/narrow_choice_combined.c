/* A choice combined by an operator on a narrow type: its text is an operand. */
void f(int r, unsigned short w1[r][r][r], unsigned a3[r][r])
{
#pragma mdh
    for (int i = 0; i < r; i++) {
        for (int j = i; j >= 0; j--) {
            for (long k = 0; k < r; k++) {
                for (int l = 1; l < r - 1; l++) {
                    w1[i][j][k] ^= ((a3[k][l] < 4) ? k : j);
                }
            }
        }
    }
}
