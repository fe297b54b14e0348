//! ordered: i
/* compares one array, keeps another */
int f(int n, int *a, int *b)
{
    int s = -100, at = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] > s) { s = b[i]; at = i; }
    return at + s;
}
