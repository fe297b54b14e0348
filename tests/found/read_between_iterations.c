/* What is read at j, the iteration j - 1 of every i has changed: the loop over i stays around both. */
void f(int n, int w1[n][n], int *a3)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            w1[i][j] = a3[j];
            a3[j + 1] -= 1;
        }
    }
}
