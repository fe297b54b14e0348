//! refused
/* rows may be the same row */
void f(int **A, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            A[i][j] = i + j;
}
