/* Names that the nest does not have. */
void f(float *w, const float *a, int n)
{
    //!next MDH409
#pragma mdh combine_ops(k: cc)
    for (int i = 0; i < n; i++)
        w[i] = a[i];
}

void g(float *w, const float *a, int n)
{
    //!next MDH409
#pragma mdh sizes(N=100)
    for (int i = 0; i < n; i++)
        w[i] = a[i];
}

void h(float *w, const float *a, int n)
{
    //!next MDH409
#pragma mdh noalias(w, b)
    for (int i = 0; i < n; i++)
        w[i] = a[i];
}
