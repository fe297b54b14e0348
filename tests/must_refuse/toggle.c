//! ordered: i
/* a state machine with two states that reads its state */
int f(int n, int *a)
{
    int s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) if (a[i] > 0) s = !s; else if (s) s = a[i] & 1;
    return s;
}
