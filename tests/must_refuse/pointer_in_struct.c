//! refused
/* the pointers of the records may point to the same place */
struct cell {
    int *at;
};

void f(struct cell *v, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        *v[i].at = i;
}
