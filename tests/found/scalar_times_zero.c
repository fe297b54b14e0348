/* What looks like `s * 0 + 0` is the constant 0. */
void f(int s1, int *r_s1)
{
#pragma mdh
    for (int i = 0; i < 1; i++) {
        s1 = ((s1 * 0) + 0);
    }
    *r_s1 = s1;
}
