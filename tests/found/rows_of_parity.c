/* A wavefront: twice `i` plus `j` and a neighbour of `j` tell the points apart, as whole numbers do. */
void f(int m, int w7[restrict][m][m + 1])
{
    int j;
#pragma mdh
    for (int i = 0; i < 4; i++) {
        for (j = 0; j <= m - 1; j++) {
            for (int l = 2; l < m; l++) {
                for (int p = j; p <= j + 1; p++) {
                    int t1 = 0;
                    w7[0][l][p] = t1;
                }
            }
        }
    }
}
