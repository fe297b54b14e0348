//! ordered: i
/* the running sum is stored and steers what is added */
int f(int n, int *a, int *b)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { if (s < 10) s += a[i]; b[i] = s; }
    return s;
}
