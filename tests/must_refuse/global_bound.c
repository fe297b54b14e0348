//! guarded: a, count
/* a may point to the bound */
int count;

void f(int *a)
{
#pragma mdh
    for (int i = 0; i < count; i++)
        a[i] = 7;
}
