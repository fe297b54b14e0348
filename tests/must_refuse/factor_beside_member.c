//! guarded: v_factor, v_at
/* at may point to the factor */
struct vector {
    float factor;
    float *at;
};

void f(struct vector *v, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        v->at[i] *= v->factor;
}
