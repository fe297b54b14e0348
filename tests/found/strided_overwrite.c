/* The value that remains is the last one of a loop with step 2. */
void f(int n, int *w1, int a2[1][n])
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j += 2) {
            for (int p = 0; p < n; p++) {
                w1[p] = a2[0][j];
            }
        }
    }
}
