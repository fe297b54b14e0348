/* A cell that every iteration reads is cleared by one of them, before an inner loop. */
void f(int n, int *w1, int *w2)
{
#pragma mdh
    for (int j = 0; j < n; j++) {
        w2[j] = w1[0];
        w1[j] = 0;
        for (int k = 0; k < n; k++) {
            w2[j] -= 0;
        }
    }
}
