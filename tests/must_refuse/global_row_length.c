//! guarded: a, width
/* a may point to the length of its rows */
int width;

void f(int *a, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i * width + j] = 1;
}
