//! refused
/* Where no condition holds, the cell keeps 4; `&&` with any neutral element would make it 1. */
void f(int n, int *restrict cell, const int *restrict use)
{
#pragma mdh
    for (int j = 0; j < n; j++) {
        if (use[j]) {
            cell[0] = cell[0] && use[j] > 3;
        }
    }
}
