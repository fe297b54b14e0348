/* The cell is written whatever the condition of the inner loop says. */
void f(int n, int *w1)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 1; j < n; j++) {
            w1[j] = w1[1];
            for (int k = 0; k < n; k++) {
                if ((j == 0)) {
                    w1[j] = 0;
                }
            }
        }
    }
}
