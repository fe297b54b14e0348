/* Three products, G = (A B) (C D), all arrays global and of constant extents. */
#include <stdio.h>

#ifndef M
#define M 61
#endif
#ifndef N
#define N 53
#endif
#ifndef P
#define P 59
#endif
#ifndef Q
#define Q 67
#endif
#ifndef R
#define R 47
#endif

double A[M][P], B[P][N], C[N][R], D[R][Q];
double E[M][N], F[N][Q], G[M][Q];

void mm3(void)
{
    int i, j, k;

#pragma mdh
    {
        for (i = 0; i < M; i++)
            for (j = 0; j < N; j++) {
                E[i][j] = 0.0;
                for (k = 0; k < P; k++)
                    E[i][j] = E[i][j] + A[i][k] * B[k][j];
            }
        for (i = 0; i < N; i++)
            for (j = 0; j < Q; j++) {
                F[i][j] = 0.0;
                for (k = 0; k < R; k++)
                    F[i][j] = F[i][j] + C[i][k] * D[k][j];
            }
        for (i = 0; i < M; i++)
            for (j = 0; j < Q; j++) {
                G[i][j] = 0.0;
                for (k = 0; k < N; k++)
                    G[i][j] = G[i][j] + E[i][k] * F[k][j];
            }
    }
}

static double small(size_t n)
{
    return (double)((n * 2654435761u >> 9) % 5) - 2.0;
}

int main(void)
{
    static double v[R], w[N];
    int bad = 0;

    for (size_t x = 0; x < (size_t)M * P; x++)
        A[x / P][x % P] = small(x);
    for (size_t x = 0; x < (size_t)P * N; x++)
        B[x / N][x % N] = small(x + 3);
    for (size_t x = 0; x < (size_t)N * R; x++)
        C[x / R][x % R] = small(7 * x + 5);
    for (size_t x = 0; x < (size_t)R * Q; x++)
        D[x / Q][x % Q] = small(3 * x + 1);

    mm3();

    /* some columns of A (B (C D)), from the right */
    for (size_t j = 0; j < Q && !bad; j += j + 1 < Q && j + Q / 9 + 1 >= Q ? Q - 1 - j : Q / 9 + 1) {
        static double u[P];
        for (size_t r = 0; r < R; r++)
            v[r] = D[r][j];
        for (size_t n = 0; n < N; n++) {
            w[n] = 0.0;
            for (size_t r = R; r-- > 0;)
                w[n] += v[r] * C[n][r];
            if (F[n][j] != w[n] && !bad) {
                printf("mm3: mismatch at F(%zu,%zu) got %g expected %g\n", n, j, F[n][j], w[n]);
                bad = 1;
            }
        }
        for (size_t p = 0; p < P; p++) {
            u[p] = 0.0;
            for (size_t n = N; n-- > 0;)
                u[p] += B[p][n] * w[n];
        }
        for (size_t m = 0; m < M && !bad; m++) {
            double expected = 0.0;
            for (size_t p = P; p-- > 0;)
                expected += A[m][p] * u[p];
            if (G[m][j] != expected) {
                printf("mm3: mismatch at G(%zu,%zu) got %g expected %g\n", m, j, G[m][j], expected);
                bad = 1;
            }
        }
    }
    if (!bad)
        puts("mm3: ok");
    return bad;
}
