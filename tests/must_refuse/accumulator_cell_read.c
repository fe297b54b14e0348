//! ordered: i
/* the running value of a cell becomes the next element that is added */
void f(int n, int *a, int *r)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        r[0] += a[i];
        a[i + 1] = r[0] * 2 - a[i];
    }
}
