/* CCSD(T) contraction abcdef-gfbc-dega: six concatenated dimensions, one reduction.
   VLA parameters with a named accumulator that starts from the old value. */
#include <stdio.h>
#include <stdlib.h>

#ifndef NA
#define NA 5
#endif
#ifndef NB
#define NB 7
#endif
#ifndef NC
#define NC 4
#endif
#ifndef ND
#define ND 6
#endif
#ifndef NE
#define NE 5
#endif
#ifndef NF
#define NF 3
#endif
#ifndef NG
#define NG 11
#endif

void contract_gfbc_dega(size_t na, size_t nb, size_t nc, size_t nd, size_t ne, size_t nf, size_t ng,
                        float out[restrict na][nb][nc][nd][ne][nf],
                        float lhs[restrict ng][nf][nb][nc],
                        float rhs[restrict nd][ne][ng][na])
{
#pragma mdh combine_ops(cc, cc, cc, cc, cc, cc, pw(+))
    for (size_t a = 0; a < na; a++)
        for (size_t b = 0; b < nb; b++)
            for (size_t c = 0; c < nc; c++)
                for (size_t d = 0; d < nd; d++)
                    for (size_t e = 0; e < ne; e++)
                        for (size_t f = 0; f < nf; f++)
                            {
                                float acc = out[a][b][c][d][e][f];
                                for (size_t g = 0; g < ng; g++)
                                    acc += lhs[g][f][b][c] * rhs[d][e][g][a];
                                out[a][b][c][d][e][f] = acc;
                            }
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3;
}

int main(void)
{
    const size_t n_lhs = (size_t)NG * NF * NB * NC, n_rhs = (size_t)ND * NE * NG * NA;
    const size_t cells = (size_t)NA * NB * NC * ND * NE * NF, step = cells / 20000 + 1, depth = NG;
    float *lhs = calloc(n_lhs + 1, sizeof *lhs);
    float *rhs = calloc(n_rhs + 1, sizeof *rhs);
    float *out = calloc(cells + 1, sizeof *out);
    int bad = 0;

    if (!lhs || !rhs || !out)
        return 2;
    for (size_t x = 0; x < n_lhs; x++)
        lhs[x] = small(x);
    for (size_t x = 0; x < n_rhs; x++)
        rhs[x] = small(x + 1234567);
    for (size_t x = 0; x < cells; x++)
        out[x] = (float)(x % 3);

    contract_gfbc_dega(NA, NB, NC, ND, NE, NF, NG, (void *)out, (void *)lhs, (void *)rhs);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        size_t f = x % NF, e = x / NF % NE, d = x / NF / NE % ND;
        size_t c = x / NF / NE / ND % NC, b = x / NF / NE / ND / NC % NB, a = x / NF / NE / ND / NC / NB;
        const float *l = lhs + (f * NB * NC + b * NC + c);
        const float *r = rhs + (d * NE * NG * NA + e * NG * NA + a);
        long expected = (long)(x % 3);
        for (size_t g = 0; g < depth; g++)
            expected += (long)l[g * (size_t)(NF * NB * NC)] * (long)r[g * NA];
        if (out[x] != (float)expected) {
            printf("ccsdt_abcdef_gfbc_dega: mismatch at (%zu,%zu,%zu,%zu,%zu,%zu) got %g expected %ld\n",
                   a, b, c, d, e, f, out[x], expected);
            bad = 1;
        }
    }
    free(lhs);
    free(rhs);
    free(out);
    if (!bad)
        puts("ccsdt_abcdef_gfbc_dega: ok");
    return bad;
}
