//! ordered: i
/* fp(exact): the rounding of a double sum to float in each step */
float f(int n, double *a)
{
    float s = 0;
#pragma mdh fp(exact)
    for (int i = 0; i < n; i++) s += a[i];
    return s;
}
