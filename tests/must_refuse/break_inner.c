//! refused
/* the inner loop ends by data */
void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            if (x[j] > x[i])
                break;
            y[i] += x[j];
        }
}
