struct vector {
    int n;
    float *at;
};

void f(struct vector *v, float *other)
{
#pragma mdh
    for (int i = 0; i < 8; i++) {
        v->at = other; //! MDH006
        v->at[i] = 0; //! MDH006
    }
}
