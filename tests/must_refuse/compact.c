//! ordered: i
/* stream compaction: the place depends on how many went before */
int f(int n, int *a, int *b)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] > 0) { b[s] = a[i]; s = s + 1; }
    return s;
}
