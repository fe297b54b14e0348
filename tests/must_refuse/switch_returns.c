//! refused
/* one case leaves the function */
int f(const int *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        switch (x[i]) {
        case 0:
            return i;
        default:
            break;
        }
    }
    return n;
}
