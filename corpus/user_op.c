/* Combine functions of the user's on structs, in both signatures: a complex product through pointers (rows of a
   matrix), and the (min, max) of a sequence by value. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef ROWS
#define ROWS 41
#endif
#ifndef COLS
#define COLS 307
#endif

typedef struct cplx {
    double re, im;
} cplx;

struct range {
    int min, max;
};

/* The result may be one of the operands. */
void cmul(cplx *res, const cplx *lhs, const cplx *rhs)
{
    const double re = lhs->re * rhs->re - lhs->im * rhs->im;
    const double im = lhs->re * rhs->im + lhs->im * rhs->re;

    res->re = re;
    res->im = im;
}

static struct range widen(struct range a, struct range b)
{
    if (b.min < a.min)
        a.min = b.min;
    if (b.max > a.max)
        a.max = b.max;
    return a;
}

void row_products(cplx *prod, const cplx *z, int rows, int cols)
{
#pragma mdh combine_ops(cc, pw(cmul))
    for (int i = 0; i < rows; i++) {
        cplx acc = {1.0, 0.0};
        for (int j = 0; j < cols; j++)
            cmul(&acc, &acc, &z[i * cols + j]);
        prod[i] = acc;
    }
}

struct range range_of(const int *a, long n)
{
    struct range r = {INT_MAX, INT_MIN};

#pragma mdh combine_ops(pw(widen))
    for (long i = 0; i < n; i++) {
        struct range one = {a[i], a[i]};
        r = widen(r, one);
    }
    return r;
}

int main(void)
{
    const long n = (long)ROWS * COLS;
    cplx *z = calloc(n + 1, sizeof *z), *prod = calloc(ROWS + 1, sizeof *prod);
    int *a = calloc(n + 1, sizeof *a);
    int bad = 0, min = INT_MAX, max = INT_MIN;

    if (!z || !prod || !a)
        return 2;
    for (long x = 0; x < n; x++) {
        unsigned turn = (unsigned)x * 2654435761u >> 30;    /* quarter turns: 1, i, -1, -i */
        z[x].re = turn == 0 ? 1.0 : turn == 2 ? -1.0 : 0.0;
        z[x].im = turn == 1 ? 1.0 : turn == 3 ? -1.0 : 0.0;
        if (x % COLS == COLS / 2)                           /* and one factor 2 + i per row */
            z[x].re = 2.0, z[x].im = 1.0;
        a[x] = (int)((unsigned)x * 2246822519u >> 16) - 30000;
        if (x == n - 1)
            a[x] = 40000;
        if (a[x] < min)
            min = a[x];
        if (a[x] > max)
            max = a[x];
    }

    row_products(prod, z, ROWS, COLS);
    struct range r = range_of(a, n);

    for (long i = 0; i < ROWS && !bad; i++) {
        static const int cosine[4] = {1, 0, -1, 0}, sine[4] = {0, 1, 0, -1};
        unsigned turns = 0;
        int scale_re = 1, scale_im = 0, re, im;
        for (long x = i * COLS; x < (i + 1) * COLS; x++) {  /* add up angles instead of multiplying */
            if (x % COLS == COLS / 2)
                scale_re = 2, scale_im = 1;
            else
                turns += (unsigned)x * 2654435761u >> 30;
        }
        re = scale_re * cosine[turns % 4] - scale_im * sine[turns % 4];
        im = scale_re * sine[turns % 4] + scale_im * cosine[turns % 4];
        if (prod[i].re != re || prod[i].im != im) {
            printf("user_op: mismatch at row %ld got (%g, %g) expected (%d, %d)\n", i, prod[i].re, prod[i].im, re, im);
            bad = 1;
        }
    }
    if (!bad && (r.min != min || r.max != max)) {
        printf("user_op: mismatch at range got [%d, %d] expected [%d, %d]\n", r.min, r.max, min, max);
        bad = 1;
    }
    free(z);
    free(prod);
    free(a);
    if (!bad)
        puts("user_op: ok");
    return bad;
}
