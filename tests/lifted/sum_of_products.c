//! i: cc, j: pw(*)
//! i: pw(+)
/* A sum over i of products over j: + and * do not interchange. */
float f(int n, int m, float a[n][m])
{
    float s = 0.0f;
#pragma mdh
    for (int i = 0; i < n; i++) {
        float p = 1.0f;
        for (int j = 0; j < m; j++)
            p *= a[i][j];
        s += p;
    }
    return s;
}
