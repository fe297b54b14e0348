//! i: cc, j: cc
/* A transposition in place that visits each pair of cells once. */
void f(int n, float a[n][n])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            float t = a[i][j];
            a[i][j] = a[j][i];
            a[j][i] = t;
        }
}
