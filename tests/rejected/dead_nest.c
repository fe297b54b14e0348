/* Nobody reads what the nest computes. */
void f(const float *x, int n)
{
    float t;
#pragma mdh
    for (int i = 0; i < n; i++)         //! MDH211
        t = x[i];
}
