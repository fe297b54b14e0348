/* A neighbour's minimum runs over the loop around the product that reads it. */
void f(int m, int *w1, int *a2, unsigned s3, unsigned *r_s3)
{
#pragma mdh
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < m; j++) {
            w1[j] = ((a2[j] <= w1[j]) ? a2[j] : w1[j]);
            s3 *= w1[j + 1];
        }
    }
    *r_s3 = s3;
}
