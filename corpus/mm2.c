/* Two products in a row, D = alpha (A B) C + beta D, through an intermediate matrix that the caller provides. */
#include <stdio.h>
#include <stdlib.h>

#ifndef M
#define M 67
#endif
#ifndef N
#define N 73
#endif
#ifndef P
#define P 59
#endif
#ifndef Q
#define Q 61
#endif

void mm2(int m, int n, int p, int q, float alpha, float beta, float T[restrict m][n], float A[restrict m][p],
         float B[restrict p][n], float C[restrict n][q], float D[restrict m][q])
{
#pragma mdh
    {
        /* T = alpha A B */
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                T[i][j] = 0.0f;
                for (int k = 0; k < p; k++)
                    T[i][j] += alpha * A[i][k] * B[k][j];
            }

        /* D = T C + beta D */
        for (int i = 0; i < m; i++)
            for (int j = 0; j < q; j++) {
                D[i][j] *= beta;
                for (int k = 0; k < n; k++)
                    D[i][j] += T[i][k] * C[k][j];
            }
    }
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 5) - 2.0f;
}

int main(void)
{
    float *a = malloc(sizeof(float) * M * P), *b = malloc(sizeof(float) * P * N), *c = malloc(sizeof(float) * N * Q);
    float *d = malloc(sizeof(float) * M * Q), *t = malloc(sizeof(float) * M * N);
    long *s = malloc(sizeof(long) * P);
    int bad = 0;

    if (!a || !b || !c || !d || !t || !s)
        return 2;
    for (size_t x = 0; x < (size_t)M * P; x++)
        a[x] = small(x);
    for (size_t x = 0; x < (size_t)P * N; x++)
        b[x] = small(x + 3);
    for (size_t x = 0; x < (size_t)N * Q; x++)
        c[x] = small(7 * x + 5);
    for (size_t x = 0; x < (size_t)M * Q; x++)
        d[x] = small(x + 29);
    for (size_t x = 0; x < (size_t)M * N; x++)
        t[x] = 1e30f;

    mm2(M, N, P, Q, 2.0f, 3.0f, (float (*)[N])t, (float (*)[P])a, (float (*)[N])b, (float (*)[Q])c, (float (*)[Q])d);

    /* some columns of A (B C), associated the other way round */
    for (size_t j = 0; j < Q && !bad; j += j + 1 < Q && j + Q / 9 + 1 >= Q ? Q - 1 - j : Q / 9 + 1) {
        for (size_t k = 0; k < P; k++) {
            s[k] = 0;
            for (size_t l = 0; l < N; l++)
                s[k] += (long)b[k * N + l] * (long)c[l * Q + j];
        }
        for (size_t i = 0; i < M && !bad; i++) {
            long expected = 3 * (long)small(i * Q + j + 29);
            for (size_t k = 0; k < P; k++)
                expected += 2 * (long)a[i * P + k] * s[k];
            if (d[i * Q + j] != (float)expected) {
                printf("mm2: mismatch at (%zu,%zu) got %g expected %ld\n", i, j, d[i * Q + j], expected);
                bad = 1;
            }
        }
    }
    /* the intermediate result is an output too */
    for (size_t i = 0; i < M && !bad; i++) {
        const size_t j = i % N;
        long expected = 0;
        for (size_t k = P; k-- > 0;)
            expected += 2 * (long)b[k * N + j] * (long)a[i * P + k];
        if (t[i * N + j] != (float)expected) {
            printf("mm2: mismatch at T(%zu,%zu) got %g expected %ld\n", i, j, t[i * N + j], expected);
            bad = 1;
        }
    }
    free(a);
    free(b);
    free(c);
    free(d);
    free(t);
    free(s);
    if (!bad)
        puts("mm2: ok");
    return bad;
}
