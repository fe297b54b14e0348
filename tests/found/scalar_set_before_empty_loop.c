/* The scalar is set before the loop, which may be empty. */
void f(int n, int s1, int *r_s1)
{
#pragma mdh
    {
        s1 = 0;
        for (int j = 1; j < n; j++) {
            s1 = 0;
        }
    }
    *r_s1 = s1;
}
