//! guarded: a, table
/* a may point into the global array */
int table[100];

void f(int *a, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        a[i] = table[i + 1];
}
