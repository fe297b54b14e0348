/* Steps see one flat array in rows of different lengths. */
void f(int m, int *w2, int *a3)
{
#pragma mdh
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < m; j++) {
            w2[j] = a3[j * (2 * m) + i + j];
        }
        for (int k = 0; k < m; k++) {
            a3[k * (2 * m) + i] = 0;
        }
    }
}
