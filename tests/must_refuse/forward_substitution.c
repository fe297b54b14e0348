//! ordered: i, j
/* an unknown needs all earlier ones */
void f(int n, double L[n][n], double *x, double *b)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        x[i] = b[i];
        for (int j = 0; j < i; j++)
            x[i] -= L[i][j] * x[j];
    }
}
