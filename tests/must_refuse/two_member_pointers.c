//! guarded: v_in, v_out
/* the pointers of one record may overlap */
struct pair {
    float *in;
    float *out;
};

void f(struct pair *v, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        v->out[i] = v->in[i + 1];
}
