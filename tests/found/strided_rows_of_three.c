/* Strides and digits keep the two stores apart. */
void f(int n, int *w4)
{
#pragma mdh
    for (int i = 0; i < n; i += 3) {
        for (int j = 0; j < 3; j++) {
            w4[i * 3 + j] = 0;
            w4[(i + 1) * 3 + j] = 0;
        }
    }
}
