/* The pointer is read anew for each store, and stores of characters may change it. */
struct image {
    int n;
    unsigned char *at;
};

void f(struct image *v)
{
#pragma mdh
    for (int i = 0; i < 8; i++) //! MDH006
        v->at[i] = 0;
}
