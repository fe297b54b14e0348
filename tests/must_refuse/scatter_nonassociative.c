//! ordered: i
/* the old value at an unknown place is scaled */
void f(int n, int *place, int *y)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[place[i]] = 2 * y[place[i]] + i;
}
