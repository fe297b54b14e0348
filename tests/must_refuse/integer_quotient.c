//! ordered: i
/* truncation after each step: (s / x) / y is s / (x * y) for positive numbers only, and the product may overflow */
int f(int n, int *a)
{
    int s = 1000;
#pragma mdh
    for (int i = 0; i < n; i++) s = s / a[i];
    return s;
}
