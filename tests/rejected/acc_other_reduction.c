//!accept acc
float f(const float *x, int n)
{
    float s = 0;
//!next MDH413
#pragma acc parallel loop reduction(max: s)
    for (int i = 0; i < n; i++)
        s += x[i];
    return s;
}
