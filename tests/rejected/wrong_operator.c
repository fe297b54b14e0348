/* The loop adds, the directive says maximum; and it reduces, the directive says concatenate. */
float f(const float *a, int n)
{
    float s = 0.0f;
    //!next MDH404
#pragma mdh combine_ops(pw(max))
    for (int i = 0; i < n; i++)
        s += a[i];
    return s;
}

void g(float *w, int n, int m, float a[n][m])
{
    //!next MDH404
#pragma mdh combine_ops(j: cc)
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            w[i] += a[i][j];
}
