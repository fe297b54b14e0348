/* An outer scalar is set where an inner sum is not 0; the outer loop never runs. */
void f(int m, int s5, int *r_s5)
{
#pragma mdh
    for (int i = 0; i < 0; i++) {
        int t1 = 0;
        for (int j = 0; j < m; j++) {
            t1 = (t1 + 0);
        }
        if (t1) {
            s5 = 0;
        }
    }
    *r_s5 = s5;
}
