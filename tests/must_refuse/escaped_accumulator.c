//! guarded: s, y
/* the accumulator's address was given away before */
void keep(int *s, int **y);

int f(const int *x, int n, int *y)
{
    int s = 0;
    keep(&s, &y);
#pragma mdh
    for (int i = 0; i < n; i++) {
        s += x[i];
        y[0] = i;
    }
    return s;
}
