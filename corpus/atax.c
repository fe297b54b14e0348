/* y = A^T (A x): every row of A is used twice, for its product with x and for its share of y. */
#include <stdio.h>
#include <stdlib.h>

#ifndef M
#define M 389
#endif
#ifndef N
#define N 409
#endif

void atax(int m, int n, float A[m][n], float x[n], float y[n])
{
    int i, j;
    float t;

#pragma mdh
    {
        for (j = 0; j < n; j++)
            y[j] = 0;
        for (i = 0; i < m; i++) {
            t = 0;
            for (j = 0; j < n; j++)
                t += A[i][j] * x[j];
            for (j = 0; j < n; j++)
                y[j] += A[i][j] * t;
        }
    }
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 5) - 2.0f;
}

int main(void)
{
    const size_t m = M, n = N;
    float (*a)[N] = malloc(sizeof(float) * m * n);
    float *x = malloc(sizeof(float) * n), *y = malloc(sizeof(float) * n);
    long *ax = calloc(m, sizeof *ax);
    int bad = 0;

    if (!a || !x || !y || !ax)
        return 2;
    for (size_t j = 0; j < n; j++) {
        x[j] = small(3 * j + 2);
        y[j] = -7.0f;
        for (size_t i = 0; i < m; i++) {
            a[i][j] = small(i * n + j);
            ax[i] += (long)(a[i][j] * x[j]);
        }
    }

    atax(M, N, a, x, y);

    for (size_t j = 0; j < n && !bad; j++) {
        long expected = 0;
        for (size_t i = m; i-- > 0;)
            expected += ax[i] * (long)a[i][j];
        if (y[j] != (float)expected) {
            printf("atax: mismatch at %zu got %g expected %ld\n", j, y[j], expected);
            bad = 1;
        }
    }
    free(a);
    free(x);
    free(y);
    free(ax);
    if (!bad)
        puts("atax: ok");
    return bad;
}
