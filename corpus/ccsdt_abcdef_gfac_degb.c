/* CCSD(T) contraction abcdef-gfac-degb: six concatenated dimensions, one reduction.
   Global arrays, no parameters; comments between the loops. */
#include <stdio.h>
#include <stddef.h>

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

float T2[NG][NF][NA][NC];
float V2[ND][NE][NG][NB];
float T3[NA][NB][NC][ND][NE][NF];

void contract_gfac_degb(void)
{
#pragma mdh
    for (int a = 0; a < NA; a++)
        for (int b = 0; b < NB; b++)
            for (int c = 0; c < NC; c++) /* virtual orbitals */
                for (int d = 0; d < ND; d++)
                    for (int e = 0; e < NE; e++)
                        for (int f = 0; f < NF; f++) // occupied orbitals
                            /* contracted: */
                            for (int g = 0; g < NG; g++)
                                T3[a][b][c][d][e][f] += T2[g][f][a][c] * V2[d][e][g][b];
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3;
}

int main(void)
{
    const size_t n_lhs = (size_t)NG * NF * NA * NC, n_rhs = (size_t)ND * NE * NG * NB;
    const size_t cells = (size_t)NA * NB * NC * ND * NE * NF, step = cells / 20000 + 1, depth = NG;
    float *const lhs = &T2[0][0][0][0], *const rhs = &V2[0][0][0][0];
    float *const out = &T3[0][0][0][0][0][0];
    int bad = 0;

    for (size_t x = 0; x < n_lhs; x++)
        lhs[x] = small(x);
    for (size_t x = 0; x < n_rhs; x++)
        rhs[x] = small(x + 1234567);
    for (size_t x = 0; x < cells; x++)
        out[x] = (float)(x % 3);

    contract_gfac_degb();

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        size_t f = x % NF, e = x / NF % NE, d = x / NF / NE % ND;
        size_t c = x / NF / NE / ND % NC, b = x / NF / NE / ND / NC % NB, a = x / NF / NE / ND / NC / NB;
        const float *l = lhs + (f * NA * NC + a * NC + c);
        const float *r = rhs + (d * NE * NG * NB + e * NG * NB + b);
        long expected = (long)(x % 3);
        for (size_t g = 0; g < depth; g++)
            expected += (long)l[g * (size_t)(NF * NA * NC)] * (long)r[g * NB];
        if (out[x] != (float)expected) {
            printf("ccsdt_abcdef_gfac_degb: mismatch at (%zu,%zu,%zu,%zu,%zu,%zu) got %g expected %ld\n",
                   a, b, c, d, e, f, out[x], expected);
            bad = 1;
        }
    }
    if (!bad)
        puts("ccsdt_abcdef_gfac_degb: ok");
    return bad;
}
