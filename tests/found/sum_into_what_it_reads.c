/* A block's sum is stored where its terms came from, then a scalar is set. */
void f(int n, int *a2, int s3, int *r_s3)
{
#pragma mdh
    {
        int t1 = 0;
        for (int j = 0; j < n; j++) {
            t1 += a2[0];
        }
        a2[0] = t1;
        s3 = 0;
    }
    *r_s3 = s3;
}
