//! ordered: i
/* a counter that is reset by data, and its maximum */
int f(int n, int *a)
{
    int s = 0, best = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { s = a[i] > 0 ? s + 1 : 0; if (s > best) best = s; }
    return best;
}
