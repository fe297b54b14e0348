/* out and inp must name what the nest writes and reads. */
void f(float *w, const float *a, const float *b, int n)
{
    //!next MDH408
#pragma mdh out(a)
    for (int i = 0; i < n; i++)
        w[i] = a[i] + b[i];
}

void g(float *w, const float *a, const float *b, int n)
{
    //!next MDH408
#pragma mdh out(w) inp(a)
    for (int i = 0; i < n; i++)
        w[i] = a[i] + b[i];
}

void h(float *w, const float *a, const float *b, int n)
{
    //!next MDH408
#pragma mdh( a[i] : ++ )
    for (int i = 0; i < n; i++)
        w[i] = a[i] + b[i];
}
