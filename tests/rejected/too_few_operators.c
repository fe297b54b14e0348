/* Two loops, one operator. */
void f(float *w, int n, int m, float a[n][m])
{
    //!next MDH403
#pragma mdh combine_ops(cc)
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            w[i] += a[i][j];
}
