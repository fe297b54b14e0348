//! ordered: i
/* a factor that is read where the value says */
float f(int n, float *a, int *at)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = at[i] * s + at[s & 3];
    return a[s & 3];
}
