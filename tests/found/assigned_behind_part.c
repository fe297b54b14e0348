/* The scalar is set behind the first loop's part, and read there in the next iteration. */
void f(int n, int *w1, int s5)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            w1[i] = (0 * w1[i]);
        }
        w1[i] = s5;
        s5 = 0;
        for (int j = 0; j < n; j++) {
        }
    }
}
