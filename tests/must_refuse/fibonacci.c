//! ordered: i
/* two variables feed each other */
unsigned f(int n, unsigned *a)
{
    unsigned s = 0, t = 1;
#pragma mdh
    for (int i = 0; i < n; i++) { unsigned next = s + t; s = t; t = next; a[i] = s; }
    return s;
}
