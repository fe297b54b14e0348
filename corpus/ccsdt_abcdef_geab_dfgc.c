/* CCSD(T) contraction abcdef-geab-dfgc: six concatenated dimensions, one reduction.
   Pointers to arrays of macro extents; inclusive bounds. */
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

void contract_geab_dfgc(double (*out)[NB][NC][ND][NE][NF], double (*lhs)[NE][NA][NB], double (*rhs)[NF][NG][NC])
{
    int a, b, c, d, e, f, g;
    #pragma mdh
    for (a = 0; a <= NA - 1; ++a)
        for (b = 0; b <= NB - 1; ++b)
            for (c = 0; c <= NC - 1; ++c)
                for (d = 0; d <= ND - 1; ++d)
                    for (e = 0; e <= NE - 1; ++e)
                        for (f = 0; f <= NF - 1; ++f)
                            for (g = 0; g <= NG - 1; ++g)
                                out[a][b][c][d][e][f] += lhs[g][e][a][b] * rhs[d][f][g][c];
}

static double small(size_t n)
{
    return (double)((n * 2654435761u >> 9) % 7) - 3;
}

int main(void)
{
    const size_t n_lhs = (size_t)NG * NE * NA * NB, n_rhs = (size_t)ND * NF * NG * NC;
    const size_t cells = (size_t)NA * NB * NC * ND * NE * NF, step = cells / 20000 + 1, depth = NG;
    double *lhs = calloc(n_lhs + 1, sizeof *lhs);
    double *rhs = calloc(n_rhs + 1, sizeof *rhs);
    double *out = calloc(cells + 1, sizeof *out);
    int bad = 0;

    if (!lhs || !rhs || !out)
        return 2;
    for (size_t x = 0; x < n_lhs; x++)
        lhs[x] = small(x);
    for (size_t x = 0; x < n_rhs; x++)
        rhs[x] = small(x + 1234567);
    for (size_t x = 0; x < cells; x++)
        out[x] = (double)(x % 3);

    contract_geab_dfgc((void *)out, (void *)lhs, (void *)rhs);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        size_t f = x % NF, e = x / NF % NE, d = x / NF / NE % ND;
        size_t c = x / NF / NE / ND % NC, b = x / NF / NE / ND / NC % NB, a = x / NF / NE / ND / NC / NB;
        const double *l = lhs + (e * NA * NB + a * NB + b);
        const double *r = rhs + (d * NF * NG * NC + f * NG * NC + c);
        long expected = (long)(x % 3);
        for (size_t g = 0; g < depth; g++)
            expected += (long)l[g * (size_t)(NE * NA * NB)] * (long)r[g * NC];
        if (out[x] != (double)expected) {
            printf("ccsdt_abcdef_geab_dfgc: mismatch at (%zu,%zu,%zu,%zu,%zu,%zu) got %g expected %ld\n",
                   a, b, c, d, e, f, out[x], expected);
            bad = 1;
        }
    }
    free(lhs);
    free(rhs);
    free(out);
    if (!bad)
        puts("ccsdt_abcdef_geab_dfgc: ok");
    return bad;
}
