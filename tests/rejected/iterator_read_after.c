/* Without a first row there is no last column. */
void f(float *y, int m, int n)
{
    int j;
#pragma mdh
    {
        for (int i = 0; i < m; i++)
            for (j = 0; j < n; j++)
                y[i * n + j] = 0;
        y[0] = j; //! MDH210
    }
}
