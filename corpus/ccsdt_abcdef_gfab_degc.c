/* CCSD(T) contraction abcdef-gfab-degc: six concatenated dimensions, one reduction.
   The loops keep one indentation, as in the generated code of quantum-chemistry packages; operators are
   stated by iterator, in a directive of two lines. */
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

void contract_gfab_degc(int na, int nb, int nc, int nd, int ne, int nf, int ng,
                        float *__restrict t3, const float *__restrict t2, const float *__restrict v2)
{
int a, b, c, d, e, f, g;
#pragma mdh combine_ops(a: cc, b: cc, c: cc, d: cc, \
                        e: cc, f: cc, g: pw(+)) name(triples)
for (a = 0; a < na; a++)
for (b = 0; b < nb; b++)
for (c = 0; c < nc; c++)
for (d = 0; d < nd; d++)
for (e = 0; e < ne; e++)
for (f = 0; f < nf; f++)
for (g = 0; g < ng; g++)
t3[((((a * nb + b) * nc + c) * nd + d) * ne + e) * nf + f]
    += t2[((g * nf + f) * na + a) * nb + b] * v2[((d * ne + e) * ng + g) * nc + c];
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3;
}

int main(void)
{
    const size_t n_lhs = (size_t)NG * NF * NA * NB, n_rhs = (size_t)ND * NE * NG * NC;
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

    contract_gfab_degc(NA, NB, NC, ND, NE, NF, NG, out, lhs, rhs);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        size_t f = x % NF, e = x / NF % NE, d = x / NF / NE % ND;
        size_t c = x / NF / NE / ND % NC, b = x / NF / NE / ND / NC % NB, a = x / NF / NE / ND / NC / NB;
        const float *l = lhs + (f * NA * NB + a * NB + b);
        const float *r = rhs + (d * NE * NG * NC + e * NG * NC + c);
        long expected = (long)(x % 3);
        for (size_t g = 0; g < depth; g++)
            expected += (long)l[g * (size_t)(NF * NA * NB)] * (long)r[g * NC];
        if (out[x] != (float)expected) {
            printf("ccsdt_abcdef_gfab_degc: mismatch at (%zu,%zu,%zu,%zu,%zu,%zu) got %g expected %ld\n",
                   a, b, c, d, e, f, out[x], expected);
            bad = 1;
        }
    }
    free(lhs);
    free(rhs);
    free(out);
    if (!bad)
        puts("ccsdt_abcdef_gfab_degc: ok");
    return bad;
}
