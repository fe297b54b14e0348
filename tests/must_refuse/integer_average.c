//! ordered: i
/* integer division in each step */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = (s * i + a[i]) / (i + 1);
    return s;
}
