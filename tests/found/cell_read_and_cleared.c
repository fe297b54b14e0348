/* Every iteration reads a cell that one of them clears; an outer scalar is combined besides. */
void f(int n, int *w5, int *w7, int *w8, int s13, int *r_s13)
{
#pragma mdh
    {
        w7[0] = 0;
        for (int k = 0; k < n; k++) {
            w5[k] = w8[0];
            w8[k] = 0;
            s13 |= 0;
        }
    }
    *r_s13 = s13;
}
