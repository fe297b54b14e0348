/* Convolutional capsules: a 4x4 matrix product per point makes ten dimensions, with reductions in two places.
   VLA parameters; strides are compile-time constants. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 1
#endif
#ifndef P
#define P 6
#endif
#ifndef Q
#define Q 5
#endif
#ifndef K
#define K 7
#endif
#ifndef R
#define R 3
#endif
#ifndef S
#define S 3
#endif
#ifndef C
#define C 3
#endif
#ifndef MI
#define MI 4
#endif
#ifndef MJ
#define MJ 4
#endif
#ifndef MK
#define MK 4
#endif
#ifndef STRIDE
#define STRIDE 1
#endif
#define H (STRIDE * (P - 1) + R)
#define W (STRIDE * (Q - 1) + S)

typedef float elem;

void mcc_capsule(long nn, long np, long nq, long nk, long nr, long ns, long nc,
                 elem out[restrict nn][np][nq][nk][MI][MJ],
                 elem img[restrict nn][STRIDE * (np - 1) + nr][STRIDE * (nq - 1) + ns][nc][MI][MK],
                 elem flt[restrict nk][nr][ns][nc][MK][MJ])
{
#pragma mdh
    for (long n = 0; n < nn; n++)
        for (long p = 0; p < np; p++)
            for (long q = 0; q < nq; q++)
                for (long k = 0; k < nk; k++)
                    for (long r = 0; r < nr; r++)
                        for (long s = 0; s < ns; s++)
                            for (long c = 0; c < nc; c++)
                                for (int mi = 0; mi < MI; mi++)
                                    for (int mj = 0; mj < MJ; mj++)
                                        for (int mk = 0; mk < MK; mk++)
                                            out[n][p][q][k][mi][mj] +=
                                                img[n][p * STRIDE + r][q * STRIDE + s][c][mi][mk] *
                                                flt[k][r][s][c][mk][mj];
}

static elem small(size_t n)
{
    return (elem)((n * 2654435761u >> 9) % 5) - 2.0f;
}

int main(void)
{
    const size_t pixels = (size_t)N * H * W * C * MI * MK, weights = (size_t)K * R * S * C * MK * MJ;
    const size_t cells = (size_t)N * P * Q * K * MI * MJ, step = cells / 5000 + 1;
    elem *img = malloc(pixels * sizeof *img);
    elem *flt = malloc(weights * sizeof *flt);
    elem *out = calloc(cells, sizeof *out);
    int bad = 0;

    if (!img || !flt || !out)
        return 2;
    for (size_t x = 0; x < pixels; x++)
        img[x] = small(x);
    for (size_t x = 0; x < weights; x++)
        flt[x] = small(x + 3);

    mcc_capsule(N, P, Q, K, R, S, C, (void *)out, (void *)img, (void *)flt);

    for (size_t x = 0; x < cells && !bad; x = x + step < cells || x + 1 == cells ? x + step : cells - 1) {
        size_t mj = x % MJ, mi = x / MJ % MI, k = x / MJ / MI % K;
        size_t q = x / MJ / MI / K % Q, p = x / MJ / MI / K / Q % P, n = x / MJ / MI / K / Q / P;
        elem expected = 0;
        for (size_t t = 0; t < (size_t)R * S * C * MK; t++) {
            size_t mk = t % MK, c = t / MK % C, s = t / MK / C % S, r = t / MK / C / S;
            size_t pixel = ((n * H + p * STRIDE + r) * W + q * STRIDE + s) * C + c;
            size_t weight = ((k * R + r) * S + s) * C + c;
            expected += flt[(weight * MK + mk) * MJ + mj] * img[(pixel * MI + mi) * MK + mk];
        }
        if (out[x] != expected) {
            printf("mcc_capsule: mismatch at (%zu,%zu,%zu,%zu,%zu,%zu) got %g expected %g\n",
                   n, p, q, k, mi, mj, out[x], expected);
            bad = 1;
        }
    }
    free(img);
    free(flt);
    free(out);
    if (!bad)
        puts("mcc_capsule: ok");
    return bad;
}
