//! ordered: i
/* the condition reads the accumulator */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (s < 50) s += a[i];
    return s;
}
