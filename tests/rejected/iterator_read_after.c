/* Where the last row ends depends on how many rows there were. */
void f(float *y, int m, int n)
{
    int j;
#pragma mdh
    {
        for (int i = 0; i < m; i++)
            for (j = 0; j < i + 1; j++)
                y[i * n + j] = 0;
        y[0] = j; //! MDH210
    }
}
