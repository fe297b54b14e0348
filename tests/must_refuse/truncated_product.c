//! ordered: i
/* an int times a float is cut off in each step */
int f(int n, float *a)
{
    int s = 100;
#pragma mdh
    for (int i = 0; i < n; i++) s *= a[i];
    return s;
}
