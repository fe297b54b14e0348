/* Matrix-vector product that clears its result inside the nest; two nests with names in one function. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 173
#endif
#ifndef K
#define K 191
#endif

/* w = A v and z = A' u, as one step of a bi-conjugate gradient solver needs them */
void matvec_pair(const double *A, const double *v, const double *u, double *w, double *z, size_t n, size_t kk)
{
    size_t i, k;

#pragma mdh name(forward)
    for (i = 0; i < n; i++) {
        w[i] = 0;
        for (k = 0; k < kk; k++)
            w[i] += A[i * kk + k] * v[k];
    }

#pragma mdh name(backward) combine_ops(k: cc, i: pw(+))
    for (k = 0; k < kk; k++) {
        z[k] = 0;
        for (i = 0; i < n; i++)
            z[k] = z[k] + u[i] * A[i * kk + k];
    }
}

static double small(size_t n)
{
    return (double)((n * 2654435761u >> 9) % 7) - 3.0;
}

int main(void)
{
    const size_t n = N, kk = K;
    double *A = calloc(n * kk + 1, sizeof *A);
    double *v = calloc(kk + 1, sizeof *v), *z = calloc(kk + 1, sizeof *z), *z_expected = calloc(kk + 1, sizeof *z);
    double *u = calloc(n + 1, sizeof *u), *w = calloc(n + 1, sizeof *w), *w_expected = calloc(n + 1, sizeof *w);
    int bad = 0;

    if (!A || !v || !z || !z_expected || !u || !w || !w_expected)
        return 2;
    for (size_t x = 0; x < n * kk; x++)
        A[x] = small(x);
    for (size_t k = 0; k < kk; k++) {
        v[k] = small(k + 7);
        z[k] = 1e6;
    }
    for (size_t i = 0; i < n; i++) {
        u[i] = small(i + 70);
        w[i] = 1e6;
    }

    matvec_pair(A, v, u, w, z, n, kk);

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < kk; k++) {    /* both results in one sweep over the matrix */
            w_expected[i] += A[i * kk + k] * v[k];
            z_expected[k] += A[i * kk + k] * u[i];
        }
    for (size_t i = 0; i < n && !bad; i++)
        if (w[i] != w_expected[i]) {
            printf("matvec_init: mismatch at w[%zu] got %g expected %g\n", i, w[i], w_expected[i]);
            bad = 1;
        }
    for (size_t k = 0; k < kk && !bad; k++)
        if (z[k] != z_expected[k]) {
            printf("matvec_init: mismatch at z[%zu] got %g expected %g\n", k, z[k], z_expected[k]);
            bad = 1;
        }
    free(A);
    free(v);
    free(z);
    free(z_expected);
    free(u);
    free(w);
    free(w_expected);
    if (!bad)
        puts("matvec_init: ok");
    return bad;
}
