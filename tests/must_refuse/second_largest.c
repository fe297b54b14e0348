//! ordered: i
/* the two largest values, updated by a branch */
int f(int n, int *a)
{
    int s = -100, t = -100;
#pragma mdh
    for (int i = 0; i < n; i++) { if (a[i] > s) { t = s; s = a[i]; } else if (a[i] > t) t = a[i]; }
    return t;
}
