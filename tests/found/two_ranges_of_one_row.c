/* Of the row, one range is written, and a part of it once more in an inner loop. */
void f(int n, int m, int *w1, int *a2)
{
#pragma mdh
    for (int j = 0; j < n; j++) {
        if (j > 1) {
            w1[j] = a2[1];
        }
        for (int k = 0; k < m; k++) {
            if (j > 3) {
                w1[j] = 0;
            }
        }
    }
}
