/* One cell is overwritten in three loops, one of them with step 3. */
void f(int n, int *w4)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 1; j < n; j += 3) {
            for (int l = 0; l < 1; l++) {
                w4[0] = 0;
            }
        }
    }
}
