/* A local variable that two parts share; the first try to expand it was given up. */
void f(int n, int s4)
{
#pragma mdh
    for (int i = 0; i < n; i++) { int t1 = 0; for (int j = 0; j < n; j++) t1 = 0; s4 = (s4 + t1) | 0; }
}
