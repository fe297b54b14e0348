//! guarded: a, total
/* a may point to the sum */
float total;

void f(float *a, const float *b, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        total += b[i];
        a[i] = 0;
    }
}
