/* The only iteration of `j` reads the cell that it adds to, under another name. */
void f(int m, int *w1)
{
#pragma mdh
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < 1; j++) {
            w1[i] = (w1[i + j] + w1[i]);
        }
    }
}
