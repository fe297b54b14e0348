/* Subtraction from the new value is not associative. */
int f(const int *a, int n)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++)
        s = a[i] - s;           //! MDH207
    return s;
}
