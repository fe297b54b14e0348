/* CCSD(T) contraction abcdef-gdac-efgb: six concatenated dimensions, one reduction.
   Linearised arrays with the index arithmetic written out, C89 iterators. */
#include <stdio.h>
#include <stdlib.h>

#ifndef NA
#define NA 4
#endif
#ifndef NB
#define NB 3
#endif
#ifndef NC
#define NC 7
#endif
#ifndef ND
#define ND 5
#endif
#ifndef NE
#define NE 6
#endif
#ifndef NF
#define NF 5
#endif
#ifndef NG
#define NG 13
#endif

void contract_gdac_efgb(float *C, const float *A, const float *B,
                        int na, int nb, int nc, int nd, int ne, int nf, int ng)
{
    int a, b, c, d, e, f, g;

#pragma mdh
    for (a = 0; a < na; a++)
        for (b = 0; b < nb; b++)
            for (c = 0; c < nc; c++)
                for (d = 0; d < nd; d++)
                    for (e = 0; e < ne; e++)
                        for (f = 0; f < nf; f++)
                            for (g = 0; g < ng; g++)
                                C[((((a * nb + b) * nc + c) * nd + d) * ne + e) * nf + f] +=
                                    A[((g * nd + d) * na + a) * nc + c] * B[((e * nf + f) * ng + g) * nb + b];
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3;
}

int main(void)
{
    const size_t n_lhs = (size_t)NG * ND * NA * NC, n_rhs = (size_t)NE * NF * NG * NB;
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

    contract_gdac_efgb(out, lhs, rhs, NA, NB, NC, ND, NE, NF, NG);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        size_t f = x % NF, e = x / NF % NE, d = x / NF / NE % ND;
        size_t c = x / NF / NE / ND % NC, b = x / NF / NE / ND / NC % NB, a = x / NF / NE / ND / NC / NB;
        const float *l = lhs + (d * NA * NC + a * NC + c);
        const float *r = rhs + (e * NF * NG * NB + f * NG * NB + b);
        long expected = (long)(x % 3);
        for (size_t g = 0; g < depth; g++)
            expected += (long)l[g * (size_t)(ND * NA * NC)] * (long)r[g * NB];
        if (out[x] != (float)expected) {
            printf("ccsdt_abcdef_gdac_efgb: mismatch at (%zu,%zu,%zu,%zu,%zu,%zu) got %g expected %ld\n",
                   a, b, c, d, e, f, out[x], expected);
            bad = 1;
        }
    }
    free(lhs);
    free(rhs);
    free(out);
    if (!bad)
        puts("ccsdt_abcdef_gdac_efgb: ok");
    return bad;
}
