/* Product of every line of a cube with one matrix, in place through a local line: X[r][q][:] = X[r][q][:] W. */
#include <stdio.h>
#include <stdlib.h>

#ifndef R
#define R 29
#endif
#ifndef Q
#define Q 31
#endif
#ifndef P
#define P 37
#endif

void doitgen(int nr, int nq, int ns, double X[nr][nq][ns], double W[ns][ns])
{
    double line[ns];
    int r, q, p, s;

#pragma mdh
    for (r = 0; r < nr; r++)
        for (q = 0; q < nq; q++) {
            for (p = 0; p < ns; p++) {
                line[p] = 0.0;
                for (s = 0; s < ns; s++)
                    line[p] += X[r][q][s] * W[s][p];
            }
            for (p = 0; p < ns; p++)
                X[r][q][p] = line[p];
        }
}

static double small(size_t n)
{
    return (double)((n * 2654435761u >> 9) % 7) - 3.0;
}

int main(void)
{
    const size_t cells = (size_t)R * Q * P, step = cells / 5000 + 1;
    double *x = malloc(sizeof(double) * R * Q * P);
    double *w = malloc(sizeof(double) * P * P);
    int bad = 0;

    if (!x || !w)
        return 2;
    for (size_t c = 0; c < cells; c++)
        x[c] = small(c);
    for (size_t c = 0; c < (size_t)P * P; c++)
        w[c] = small(c + 6);

    doitgen(R, Q, P, (double (*)[Q][P])x, (double (*)[P])w);

    for (size_t c = 0; c < cells && !bad; c = c + step < cells || c + 1 == cells ? c + step : cells - 1) {
        const size_t first = c - c % P;
        long expected = 0;
        for (size_t s = P; s-- > 0;)
            expected += (long)small(first + s) * (long)w[s * P + c % P];
        if (x[c] != (double)expected) {
            printf("doitgen: mismatch at (%zu,%zu,%zu) got %g expected %ld\n", c / P / Q, c / P % Q, c % P, x[c],
                   expected);
            bad = 1;
        }
    }
    free(x);
    free(w);
    if (!bad)
        puts("doitgen: ok");
    return bad;
}
