/* A running sum is added to one cell; the loop may be empty. */
void f(int n, int *a2, int *w5, int s1)
{
#pragma mdh
    for (int j = 1; j < n - 1; j++) {
        s1 += a2[0];
        w5[0] += s1;
    }
}
