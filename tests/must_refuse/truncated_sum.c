//! ordered: i
/* a float added to an int is cut off in each step */
int f(int n, float *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s += 0.5f * a[i];
    return s;
}
