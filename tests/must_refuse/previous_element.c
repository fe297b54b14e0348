//! ordered: i
/* a variable carries the previous element, which is compared */
int f(int n, int *a)
{
    int s = 0, before = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { if (a[i] > before + s) s++; before = a[i]; }
    return s;
}
