/* Loops that begin at others' iterators are cut where an index without iterators is met. */
void f(int n, long *w1)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = i; j < i + 2; j++) {
            for (long k = j; k < j + 2; k++) {
                if (k) {
                    w1[(i * (n + 1) + j) * (n + 2) + k] = 0;
                } else {
                    w1[(k * (n + 1) + i) * (n + 2) + j] = 0;
                }
            }
        }
    }
}
