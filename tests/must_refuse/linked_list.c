//! refused
/* the next element is known after this one */
struct node {
    int value;
    struct node *next;
};

void f(struct node *p, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        p->value = i;
        p = p->next;
    }
}
