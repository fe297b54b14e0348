/* Product of a matrix with one vector and of its transpose with another, both onto old values. The transposed one
   goes along the rows, as one writes it for the cache. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 431
#endif

void mvt(long n, const float *a, float *x1, float *x2, const float *y1, const float *y2)
{
    long i, j;

#pragma mdh
    {
        for (i = 0; i < n; i++)
            for (j = 0; j < n; j++)
                x1[i] += a[i * n + j] * y1[j];
        for (i = 0; i < n; i++)
            for (j = 0; j < n; j++)
                x2[j] += a[i * n + j] * y2[i];
    }
}

static float small(size_t n)
{
    return (float)((n * 2654435761u >> 9) % 7) - 3.0f;
}

int main(void)
{
    const size_t n = N;
    float *a = malloc(sizeof(float) * n * n), *v[4];
    int bad = 0;

    if (!a)
        return 2;
    for (size_t x = 0; x < n * n; x++)
        a[x] = small(x);
    for (size_t k = 0; k < 4; k++) {
        if (!(v[k] = malloc(sizeof(float) * n)))
            return 2;
        for (size_t i = 0; i < n; i++)
            v[k][i] = small(17 * i + k);
    }

    mvt(N, a, v[0], v[1], v[2], v[3]);

    for (size_t i = 0; i < n && !bad; i++) {
        long one = (long)small(17 * i), two = (long)small(17 * i + 1);
        for (size_t j = n; j-- > 0;) {
            one += (long)(v[2][j] * a[i * n + j]);
            two += (long)(v[3][j] * a[j * n + i]);
        }
        if (v[0][i] != (float)one || v[1][i] != (float)two) {
            printf("mvt: mismatch at %zu got (%g, %g) expected (%ld, %ld)\n", i, v[0][i], v[1][i], one, two);
            bad = 1;
        }
    }
    free(a);
    for (int k = 0; k < 4; k++)
        free(v[k]);
    if (!bad)
        puts("mvt: ok");
    return bad;
}
