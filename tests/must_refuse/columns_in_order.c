//! ordered: i, j
/* a recurrence around a loop: its iterations stay in order, the inner ones are parallel */
void f(int n, int m, double x[n][m], double b[n][m])
{
#pragma mdh
    for (int i = 1; i < n; i++)
        for (int j = 0; j < m; j++)
            x[i][j] = 0.5 * x[i - 1][j] + b[i][j];
}
