//! ordered: i
/* the place is read and moved */
void f(int n, int *x, int *start, int *y)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        y[start[x[i]]] = x[i];
        start[x[i]] += 1;
    }
}
