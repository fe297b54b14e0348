void f(int *y, const int *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        switch (x[i]) { //! MDH205
        case 0: y[i] = 1; break;
        default: y[i] = 2;
        }
    }
}
