/* Two stores to one cell between two loops: they keep their order. */
void f(int n, int *w6, int s4, int *r_s4)
{
#pragma mdh
    {
        for (int k = 0; k < n; k++) {
            s4 += 0;
        }
        w6[0] = 0;
        w6[0] = s4;
        for (int k = 0; k < n; k++) {
            s4 += 0;
        }
    }
    *r_s4 = s4;
}
