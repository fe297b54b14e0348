/* Heat in a cube, there and back between two linearised arrays in every time step; the surface keeps its values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 23
#endif
#ifndef T
#define T 4
#endif

#define AT(u, i, j, k) (u)[((i) * n + (j)) * n + (k)]

void heat_3d(int steps, int n, double c, double *a, double *b)
{
    int t, i, j, k;

#pragma mdh
    for (t = 1; t <= steps; t++) {
        for (i = 1; i < n - 1; i++)
            for (j = 1; j < n - 1; j++)
                for (k = 1; k < n - 1; k++)
                    AT(b, i, j, k) = AT(a, i, j, k)
                        + c * (AT(a, i - 1, j, k) - 2.0 * AT(a, i, j, k) + AT(a, i + 1, j, k))
                        + c * (AT(a, i, j - 1, k) - 2.0 * AT(a, i, j, k) + AT(a, i, j + 1, k))
                        + c * (AT(a, i, j, k - 1) - 2.0 * AT(a, i, j, k) + AT(a, i, j, k + 1));
        for (i = 1; i < n - 1; i++)
            for (j = 1; j < n - 1; j++)
                for (k = 1; k < n - 1; k++)
                    AT(a, i, j, k) = AT(b, i, j, k)
                        + c * (AT(b, i - 1, j, k) - 2.0 * AT(b, i, j, k) + AT(b, i + 1, j, k))
                        + c * (AT(b, i, j - 1, k) - 2.0 * AT(b, i, j, k) + AT(b, i, j + 1, k))
                        + c * (AT(b, i, j, k - 1) - 2.0 * AT(b, i, j, k) + AT(b, i, j, k + 1));
    }
}

static int inside(int x)
{
    return x > 0 && x < N - 1;
}

int main(void)
{
    static const int step[6] = {1, -1, N, -N, N * N, -N * N};
    const int cells = N * N * N;
    double *a = malloc(cells * sizeof *a), *b = malloc(cells * sizeof *b);
    double *now = malloc(cells * sizeof *now), *next = malloc(cells * sizeof *next);
    int bad = 0;

    if (!a || !b || !now || !next)
        return 2;
    for (int x = 0; x < cells; x++)
        a[x] = b[x] = now[x] = next[x] = (double)((unsigned)x * 2654435761u >> 27) - 13.0;
    heat_3d(T, N, 0.125, a, b);
    for (int t = 0; t < 2 * T; t++) {
        double *other = now;
        for (int x = 0; x < cells; x++)
            if (inside(x % N) && inside(x / N % N) && inside(x / N / N)) {
                double around = 0.0;
                for (int s = 0; s < 6; s++)
                    around += now[x + step[s]];
                next[x] = 0.25 * now[x] + 0.125 * around;
            }
        now = next;
        next = other;
    }
    for (int x = 0; x < cells && !bad; x++)
        if (!(fabs(a[x] - now[x]) <= 1e-10)) {
            printf("heat_3d: mismatch at %d got %g expected %g\n", x, a[x], now[x]);
            bad = 1;
        }
    free(a);
    free(b);
    free(now);
    free(next);
    if (!bad)
        puts("heat_3d: ok");
    return bad;
}
