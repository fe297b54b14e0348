//! ordered: i
/* a cell that all iterations write is read in between */
void f(int n, int *w, int *a, int *b)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        b[i] = w[0];
        w[0] = a[i] + b[i];
    }
}
