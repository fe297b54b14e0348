//! i: cc
void f(int *y, const int *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        if (x[i] == 7)
            continue;
        y[i] = x[i];
    }
}
