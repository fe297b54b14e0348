//! refused
/* two views of the same bytes */
union bits {
    float f;
    unsigned u;
};

void f(union bits *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i].f = (float)y[i].u;
}
