/* Parts of a loop that are not flat each, but together. */
void f(int n, int *w1, int *w5, int s3)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        w1[0] = 0;
        for (int j = 0; j < n; j++) {
            s3 = 0;
            for (int k = 0; k < n; k++) {
                s3 = (s3 + 0);
            }
            for (int k = 1; k < n; k++) {
                w5[(i * n + j) * (n + 1) + k] = (w5[(j * n + j) * (n + 1) + 0] - s3);
            }
        }
    }
}
