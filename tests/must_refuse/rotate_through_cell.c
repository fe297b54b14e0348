//! ordered: i
/* all cells pass through cell 0 */
void f(int n, int *a, int *b)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        b[i] = a[0];
        a[0] = b[i] + i;
    }
}
