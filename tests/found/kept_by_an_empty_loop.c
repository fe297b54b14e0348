/* A value that one part of a loop sets and another, without loops of its own, keeps. */
void f(int n, int w3[n][n], int s4, int *r_s4)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++) {
            w3[i][k] = 0;
            s4 = 0;
        }
        for (int k = 0; k < n; k++) {
            w3[i][k] = 0;
        }
        for (int k = 0; k < n; k++) {
            s4 = s4;
        }
    }
    *r_s4 = s4;
}
