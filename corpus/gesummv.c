/* Sum of two matrix-vector products, y = alpha A x + beta B x, in one sweep with two accumulators.
   Pointers to arrays, extents known at run time only. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 401
#endif

void gesummv(int n, float alpha, float beta, float (*A)[n], float (*B)[n], float *x, float *y)
{
    float s, t;

#pragma mdh
    for (int i = 0; i < n; ++i) {
        s = 0.0f;
        t = 0.0f;
        for (int j = 0; j < n; ++j) {
            s = A[i][j] * x[j] + s;
            t = B[i][j] * x[j] + t;
        }
        y[i] = alpha * s + beta * t;
    }
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3.0f;
}

int main(void)
{
    const size_t n = N;
    float (*a)[N] = malloc(sizeof(float) * n * n);
    float (*b)[N] = malloc(sizeof(float) * n * n);
    float *x = malloc(sizeof(float) * n), *y = malloc(sizeof(float) * n);
    int bad = 0;

    if (!a || !b || !x || !y)
        return 2;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            a[i][j] = small(i * n + j);
            b[i][j] = small(3 * (i + n * j) + 2);
        }
        x[i] = small(i * i + 5);
        y[i] = -55.0f;
    }

    gesummv(N, 2.0f, 3.0f, a, b, x, y);

    for (size_t i = 0; i < n && !bad; i++) {
        long expected = 0;              /* (2 A + 3 B) x, from the right */
        for (size_t j = n; j-- > 0;)
            expected += (2 * (long)a[i][j] + 3 * (long)b[i][j]) * (long)x[j];
        if (y[i] != (float)expected) {
            printf("gesummv: mismatch at %zu got %g expected %ld\n", i, y[i], expected);
            bad = 1;
        }
    }
    free(a);
    free(b);
    free(x);
    free(y);
    if (!bad)
        puts("gesummv: ok");
    return bad;
}
