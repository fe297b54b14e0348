/* CCSD(T) contraction abcdef-gdbc-efga: six concatenated dimensions, one reduction.
   Index macros over linearised arrays; a scalar accumulator; the macros are local to the nest. */
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

void contract_gdbc_efga(float *restrict out, const float *restrict lhs, const float *restrict rhs)
{
#define LHS(g, d, b, c) lhs[(((g) * ND + (d)) * NB + (b)) * NC + (c)]
#define RHS(e, f, g, a) rhs[(((e) * NF + (f)) * NG + (g)) * NA + (a)]
#pragma mdh
    for (size_t a = 0; a < NA; a++)
        for (size_t b = 0; b < NB; b++)
            for (size_t c = 0; c < NC; c++)
                for (size_t d = 0; d < ND; d++)
                    for (size_t e = 0; e < NE; e++)
                        for (size_t f = 0; f < NF; f++)
                            {
                                float sum = 0.0f;
                                for (size_t g = 0; g < NG; g++)
                                    sum += LHS(g, d, b, c) * RHS(e, f, g, a);
                                out[((((a * NB + b) * NC + c) * ND + d) * NE + e) * NF + f] += sum;
                            }
#undef LHS
#undef RHS
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3;
}

int main(void)
{
    const size_t n_lhs = (size_t)NG * ND * NB * NC, n_rhs = (size_t)NE * NF * NG * NA;
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

    contract_gdbc_efga(out, lhs, rhs);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        size_t f = x % NF, e = x / NF % NE, d = x / NF / NE % ND;
        size_t c = x / NF / NE / ND % NC, b = x / NF / NE / ND / NC % NB, a = x / NF / NE / ND / NC / NB;
        const float *l = lhs + (d * NB * NC + b * NC + c);
        const float *r = rhs + (e * NF * NG * NA + f * NG * NA + a);
        long expected = (long)(x % 3);
        for (size_t g = 0; g < depth; g++)
            expected += (long)l[g * (size_t)(ND * NB * NC)] * (long)r[g * NA];
        if (out[x] != (float)expected) {
            printf("ccsdt_abcdef_gdbc_efga: mismatch at (%zu,%zu,%zu,%zu,%zu,%zu) got %g expected %ld\n",
                   a, b, c, d, e, f, out[x], expected);
            bad = 1;
        }
    }
    free(lhs);
    free(rhs);
    free(out);
    if (!bad)
        puts("ccsdt_abcdef_gdbc_efga: ok");
    return bad;
}
