//! i: cc, j: pw(+)
//! i: pw(+)
/* The squares of dot products are summed: not one homomorphism. */
float f(int n, int m, float a[n][m], const float *v)
{
    float s = 0.0f;
#pragma mdh
    for (int i = 0; i < n; i++) {
        float d = 0.0f;
        for (int j = 0; j < m; j++)
            d += a[i][j] * v[j];
        s += d * d;
    }
    return s;
}
