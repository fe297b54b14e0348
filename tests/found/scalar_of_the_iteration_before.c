/* The loop may be empty, then a temporary for the scalar's values has no element. */
void f(int n, int *w2, int s1)
{
#pragma mdh
    for (int i = 1; i < n - 1; i++) {
        w2[i] = s1;
        s1 = 0;
    }
}
