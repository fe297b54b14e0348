/* Five-point relaxation of a plate over time, on global arrays; the border keeps its values. */
#include <math.h>
#include <stdio.h>

#ifndef N
#define N 67
#endif
#ifndef T
#define T 8
#endif

double A[N][N], B[N][N];

void jacobi2d_time(void)
{
    int t, i, j;

#pragma mdh
    for (t = 0; t < T; t++) {
        for (i = 1; i < N - 1; i++)
            for (j = 1; j < N - 1; j++)
                B[i][j] = 0.2 * (A[i][j] + A[i][j - 1] + A[i][j + 1] + A[i + 1][j] + A[i - 1][j]);
        for (i = 1; i < N - 1; i++)
            for (j = 1; j < N - 1; j++)
                A[i][j] = 0.2 * (B[i][j] + B[i][j - 1] + B[i][j + 1] + B[i + 1][j] + B[i - 1][j]);
    }
}

int main(void)
{
    static double now[N][N], sum[N][N];

    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            A[i][j] = B[i][j] = now[i][j] = (double)((unsigned)(i * 57 + j * 23) % 41u) - 20.0;
    jacobi2d_time();
    for (int t = 0; t < 2 * T; t++) {           /* every cell adds itself to its neighbours */
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                sum[i][j] = now[i][j];
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                if (i > 0)
                    sum[i - 1][j] += now[i][j];
                if (j > 0)
                    sum[i][j - 1] += now[i][j];
                if (i + 1 < N)
                    sum[i + 1][j] += now[i][j];
                if (j + 1 < N)
                    sum[i][j + 1] += now[i][j];
            }
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                now[i][j] = sum[i][j] / 5.0;
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            if (!(fabs(A[i][j] - now[i][j]) <= 1e-10)) {
                printf("jacobi2d_time: mismatch at [%d][%d] got %g expected %g\n", i, j, A[i][j], now[i][j]);
                return 1;
            }
    puts("jacobi2d_time: ok");
    return 0;
}
