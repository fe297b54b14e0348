/* The two products of a biconjugate gradient step, q = A p and s = A^T r, in one sweep over A. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 397
#endif
#ifndef M
#define M 421
#endif

void bicg(int n, int m, const double (*restrict A)[m], const double *restrict p, const double *restrict r,
          double *restrict q, double *restrict s)
{
    int i, j;

#pragma mdh
    {
        for (i = 0; i < m; i++)
            s[i] = 0.0;

        for (i = 0; i < n; i++) {
            q[i] = 0.0;
            for (j = 0; j < m; j++) {
                s[j] = s[j] + r[i] * A[i][j];
                q[i] = q[i] + A[i][j] * p[j];
            }
        }
    }
}

static double small(size_t n)
{
    return (double)((n * 2654435761u >> 9) % 7) - 3.0;
}

int main(void)
{
    const size_t n = N, m = M;
    double *a = malloc(sizeof(double) * n * m);
    double *p = malloc(sizeof(double) * m), *r = malloc(sizeof(double) * n);
    double *q = malloc(sizeof(double) * n), *s = malloc(sizeof(double) * m);
    int bad = 0;

    if (!a || !p || !r || !q || !s)
        return 2;
    for (size_t x = 0; x < n * m; x++)
        a[x] = small(x);
    for (size_t i = 0; i < n; i++) {
        r[i] = small(i + 11);
        q[i] = 99.0;
    }
    for (size_t j = 0; j < m; j++) {
        p[j] = small(5 * j);
        s[j] = 99.0;
    }

    bicg(N, M, (const double (*)[M])a, p, r, q, s);

    for (size_t j = 0; j < m && !bad; j++) {
        long expected = 0;
        for (size_t i = n; i-- > 0;)
            expected += (long)(a[i * m + j] * r[i]);
        if (s[j] != (double)expected) {
            printf("bicg: mismatch at s(%zu) got %g expected %ld\n", j, s[j], expected);
            bad = 1;
        }
    }
    for (size_t i = 0; i < n && !bad; i++) {
        long expected = 0;
        for (size_t j = m; j-- > 0;)
            expected += (long)(p[j] * a[i * m + j]);
        if (q[i] != (double)expected) {
            printf("bicg: mismatch at q(%zu) got %g expected %ld\n", i, q[i], expected);
            bad = 1;
        }
    }
    free(a);
    free(p);
    free(r);
    free(q);
    free(s);
    if (!bad)
        puts("bicg: ok");
    return bad;
}
