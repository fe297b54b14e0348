//! refused
/* the bytes may be those of the pointer itself */
struct bytes {
    int n;
    unsigned char *at;
};

void f(struct bytes *v)
{
#pragma mdh
    for (int i = 0; i < 8; i++)
        v->at[i] = i;
}
