//! ordered: i
/* Kadane: the better of starting anew and going on */
int f(int n, int *a)
{
    int s = 0, best = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { s = s + a[i] > a[i] ? s + a[i] : a[i]; if (s > best) best = s; }
    return best;
}
