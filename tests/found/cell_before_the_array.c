/* Where the loop is empty there is no cell w1[m - 1], and nothing may touch one. */
void f(int m, int *w1, int *a2, int *a3)
{
#pragma mdh
    for (int j = 0; j < m; j++) {
        if (((a2[j] & a3[j + 1]) > w1[m - 1])) {
            w1[m - 1] = (a2[j] & a3[j + 1]);
        }
    }
}
