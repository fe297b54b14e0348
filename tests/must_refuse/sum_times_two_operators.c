//! ordered: i
/* + and * on one variable */
int f(int n, int *a, int *b)
{
    int s = 1;
#pragma mdh
    for (int i = 0; i < n; i++) { s += a[i]; s *= b[i]; }
    return s;
}
