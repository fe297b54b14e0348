/* No point at all, which tells all positions apart. */
void f(int r, int *w4)
{
#pragma mdh
    for (int i = 0; i < r; i++) {
        for (int j = i; j < i; j++) {
            w4[i + j] = 0;
        }
    }
}
