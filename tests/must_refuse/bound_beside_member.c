//! refused
/* at may point to n */
struct vector {
    int n;
    int *at;
};

void f(struct vector *v)
{
#pragma mdh
    for (int i = 0; i < v->n; i++)
        v->at[i] = 100;
}
