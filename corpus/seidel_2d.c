/* Nine-point smoothing in place: every cell takes the mean of its neighbourhood, some of which is already new. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 71
#endif
#ifndef T
#define T 6
#endif

void seidel_2d(int steps, int n, double (*u)[n])
{
    int t, i, j;

#pragma mdh
    for (t = 0; t < steps; t++)
        for (i = 1; i <= n - 2; i++)
            for (j = 1; j <= n - 2; j++)
                u[i][j] = (u[i - 1][j - 1] + u[i - 1][j] + u[i - 1][j + 1]
                           + u[i][j - 1] + u[i][j] + u[i][j + 1]
                           + u[i + 1][j - 1] + u[i + 1][j] + u[i + 1][j + 1]) / 9.0;
}

int main(void)
{
    double (*u)[N] = malloc(sizeof(double[N][N])), (*v)[N] = malloc(sizeof(double[N][N]));
    int bad = 0;

    if (!u || !v)
        return 2;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            u[i][j] = v[i][j] = (double)((unsigned)(i * 91 + j * 13) % 53u);
    seidel_2d(T, N, u);
    /* cells of equal 2 i + j do not need each other: fronts, each from below */
    for (int t = 0; t < T; t++)
        for (int front = 3; front <= 3 * (N - 2); front++)
            for (int i = N - 2; i >= 1; i--) {
                const int j = front - 2 * i;
                double sum = 0.0;
                if (j < 1 || j > N - 2)
                    continue;
                for (int x = 8; x >= 0; x--)
                    sum += v[i + x / 3 - 1][j + x % 3 - 1];
                v[i][j] = sum / 9.0;
            }
    for (int i = 0; i < N && !bad; i++)
        for (int j = 0; j < N && !bad; j++)
            if (!(fabs(u[i][j] - v[i][j]) <= 1e-10)) {
                printf("seidel_2d: mismatch at [%d][%d] got %g expected %g\n", i, j, u[i][j], v[i][j]);
                bad = 1;
            }
    free(u);
    free(v);
    if (!bad)
        puts("seidel_2d: ok");
    return bad;
}
