//! refused
/* a function gets the iterator's address */
static void skip(int *i)
{
    if (*i % 3 == 0)
        ++*i;
}

void f(const int *x, int *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        skip(&i);
        y[i] = x[i];
    }
}
