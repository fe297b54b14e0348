/* CCSD(T) contraction abcdef-gdab-efgc: six concatenated dimensions, one reduction.
   Variable-length array parameters with const and restrict. */
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

void contract_gdab_efgc(int na, int nb, int nc, int nd, int ne, int nf, int ng,
                        float C[restrict na][nb][nc][nd][ne][nf],
                        float A[restrict ng][nd][na][nb],
                        float B[restrict ne][nf][ng][nc])
{
#pragma mdh
    for (int a = 0; a < na; a++)
        for (int b = 0; b < nb; b++)
            for (int c = 0; c < nc; c++)
                for (int d = 0; d < nd; d++)
                    for (int e = 0; e < ne; e++)
                        for (int f = 0; f < nf; f++)
                            for (int g = 0; g < ng; g++)
                                C[a][b][c][d][e][f] += A[g][d][a][b] * B[e][f][g][c];
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3;
}

int main(void)
{
    const size_t n_lhs = (size_t)NG * ND * NA * NB, n_rhs = (size_t)NE * NF * NG * NC;
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

    contract_gdab_efgc(NA, NB, NC, ND, NE, NF, NG, (void *)out, (void *)lhs, (void *)rhs);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        size_t f = x % NF, e = x / NF % NE, d = x / NF / NE % ND;
        size_t c = x / NF / NE / ND % NC, b = x / NF / NE / ND / NC % NB, a = x / NF / NE / ND / NC / NB;
        const float *l = lhs + (d * NA * NB + a * NB + b);
        const float *r = rhs + (e * NF * NG * NC + f * NG * NC + c);
        long expected = (long)(x % 3);
        for (size_t g = 0; g < depth; g++)
            expected += (long)l[g * (size_t)(ND * NA * NB)] * (long)r[g * NC];
        if (out[x] != (float)expected) {
            printf("ccsdt_abcdef_gdab_efgc: mismatch at (%zu,%zu,%zu,%zu,%zu,%zu) got %g expected %ld\n",
                   a, b, c, d, e, f, out[x], expected);
            bad = 1;
        }
    }
    free(lhs);
    free(rhs);
    free(out);
    if (!bad)
        puts("ccsdt_abcdef_gdab_efgc: ok");
    return bad;
}
