void f(int n, float *x)
{
//!next MDH418
#pragma mdh data copy(x)
    for (int k = 0; k < 3; k++) {
#pragma mdh
        for (int i = 0; i < n; i++) x[i] = x[i] * 2;
    }
}
