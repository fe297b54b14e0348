/* Matrix-vector product over variable-length array parameters, with every clause that can cross-check it. */
#include <stdio.h>
#include <stdlib.h>

#ifndef I
#define I 211
#endif
#ifndef K
#define K 307
#endif

void matvec(int n, int k_max, float w[restrict n], float M[restrict n][k_max], float v[restrict k_max])
{
#pragma mdh combine_ops(i: cc, k: pw(+)) out(w) inp(M, v)
    for (int i = 0; i < n; ++i) {
        for (int k = 0; k < k_max; ++k) {
            w[i] += M[i][k] * v[k];
        }
    }
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3.0f;
}

int main(void)
{
    float (*M)[K] = malloc(sizeof(float[I][K]));
    float *w = malloc(I * sizeof *w);
    float *v = malloc(K * sizeof *v);
    int bad = 0;

    if (!M || !w || !v)
        return 2;
    for (size_t i = 0; i < I; i++) {
        w[i] = (float)(i % 4);              /* the product is added to what is there */
        for (size_t k = 0; k < K; k++)
            M[i][k] = small(i * K + k);
    }
    for (size_t k = 0; k < K; k++)
        v[k] = small(k + 17);

    matvec(I, K, w, M, v);

    for (size_t i = 0; i < I && !bad; i++) {
        long expected = (long)(i % 4);
        for (size_t k = K; k-- > 0;)
            expected += (long)small(i * K + k) * (long)small(k + 17);
        if (w[i] != (float)expected) {
            printf("matvec: mismatch at %zu got %g expected %ld\n", i, w[i], expected);
            bad = 1;
        }
    }
    free(M);
    free(w);
    free(v);
    if (!bad)
        puts("matvec: ok");
    return bad;
}
