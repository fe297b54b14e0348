/* The last element that fulfils a condition depends on the order. */
int f(const int *a, int n)
{
    int found = -1;
#pragma mdh
    for (int i = 0; i < n; i++)
        if (a[i] > 3)
            found = a[i];       //! MDH207
    return found;
}
