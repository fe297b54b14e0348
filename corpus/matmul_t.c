/* Matrix product with all three matrices transposed; linearised, C89 iterators, index macros. */
#include <stdio.h>
#include <stdlib.h>

#ifndef M
#define M 61
#endif
#ifndef N
#define N 59
#endif
#ifndef K
#define K 83
#endif

typedef double real;

#define AT(k, i) ((k) * m + (i))
#define BT(j, k) ((j) * kk + (k))
#define CT(j, i) ((j) * m + (i))
#define MUL(a, b) ((a) * (b))

void matmul_transposed(real *c, const real *a, const real *b, int m, int n, int kk)
{
    int i, j, k;

#pragma mdh
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++)
            for (k = 0; k < kk; k++)
                c[CT(j, i)] = c[CT(j, i)] + MUL(a[AT(k, i)], b[BT(j, k)]);
}

#undef AT
#undef BT
#undef CT

static real small(size_t n)
{
    return (real)((n * 2654435761u >> 9) % 9) - 4.0;
}

int main(void)
{
    const size_t depth = K, n_a = depth * M, n_b = N * depth, cells = (size_t)M * N, step = cells / 5000 + 1;
    real *a = calloc(n_a + 1, sizeof *a);
    real *b = calloc(n_b + 1, sizeof *b);
    real *c = calloc(cells + 1, sizeof *c);
    size_t x;
    int bad = 0;

    if (!a || !b || !c)
        return 2;
    for (x = 0; x < n_a; x++)
        a[x] = small(x);
    for (x = 0; x < n_b; x++)
        b[x] = small(3 * x + 1);
    for (x = 0; x < cells; x++)
        c[x] = (real)(x % 3);

    matmul_transposed(c, a, b, M, N, K);

    for (x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        size_t j = x / M, i = x % M, k;
        const real *pa = a + i, *pb = b + j * K;
        real expected = (real)(x % 3);
        for (k = 0; k < depth; k++, pa += M)
            expected += *pa * *pb++;
        if (c[x] != expected) {
            printf("matmul_t: mismatch at (%zu,%zu) got %g expected %g\n", j, i, c[x], expected);
            bad = 1;
        }
    }
    free(a);
    free(b);
    free(c);
    if (!bad)
        puts("matmul_t: ok");
    return bad;
}
