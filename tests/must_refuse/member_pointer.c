//! refused
/* a pointer inside of an object that the nest might overwrite */
struct vector {
    int n;
    float *at;
};

void f(struct vector *v, float a)
{
#pragma mdh
    for (int i = 0; i < 8; i++)
        v->at[i] *= a;
}
