//! ordered: i
/* which map is applied depends on the value */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s = s > 100 ? s / 2 : 2 * s + a[i];
    return s;
}
