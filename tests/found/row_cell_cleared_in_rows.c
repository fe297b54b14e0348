/* A copy of the cell per row would have extents that change in the outer loop. */
void f(int n, int *w1, int a4[n][n])
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            w1[i] = 0;
            for (int k = 0; k < n; k++) {
                w1[i] = (w1[i] && a4[j][k]);
            }
        }
    }
}
