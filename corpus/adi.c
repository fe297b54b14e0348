/* Heat in a square plate with cold borders by alternating directions: every time step solves a tridiagonal system in
   each row, then one in each column, by elimination upwards and substitution downwards. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 41
#endif
#ifndef T
#define T 6
#endif

void adi(int steps, int n, double r, double u[n][n], double v[n][n], double p[n][n], double q[n][n])
{
    int t, i, j;
    const double diag = 1.0 + 2.0 * r;

#pragma mdh
    for (t = 0; t < steps; t++) {
        /* from u to v: implicit along the rows */
        for (i = 1; i < n - 1; i++) {
            v[i][0] = 0.0;
            p[i][0] = 0.0;
            q[i][0] = 0.0;
            for (j = 1; j < n - 1; j++) {
                p[i][j] = r / (diag - r * p[i][j - 1]);
                q[i][j] = (r * u[i - 1][j] + (1.0 - 2.0 * r) * u[i][j] + r * u[i + 1][j] + r * q[i][j - 1])
                          / (diag - r * p[i][j - 1]);
            }
            v[i][n - 1] = 0.0;
            for (j = n - 2; j >= 1; j--)
                v[i][j] = p[i][j] * v[i][j + 1] + q[i][j];
        }
        /* from v to u: implicit along the columns */
        for (j = 1; j < n - 1; j++) {
            p[0][j] = 0.0;
            q[0][j] = 0.0;
            for (i = 1; i < n - 1; i++) {
                p[i][j] = r / (diag - r * p[i - 1][j]);
                q[i][j] = (r * v[i][j - 1] + (1.0 - 2.0 * r) * v[i][j] + r * v[i][j + 1] + r * q[i - 1][j])
                          / (diag - r * p[i - 1][j]);
            }
            u[n - 1][j] = 0.0;
            for (i = n - 2; i >= 1; i--)
                u[i][j] = p[i][j] * u[i + 1][j] + q[i][j];
        }
    }
}

/* Solves a line with unknowns 1..n-2, zero at 0 and n-1, eliminating from the far end. */
static void line(int n, double r, const double *rhs, double *x)
{
    double c[N], d[N];

    c[n - 1] = d[n - 1] = 0.0;
    for (int m = n - 2; m >= 1; m--) {
        const double pivot = 1.0 / (1.0 + 2.0 * r - r * c[m + 1]);
        c[m] = r * pivot;
        d[m] = (rhs[m] + r * d[m + 1]) * pivot;
    }
    x[0] = x[n - 1] = 0.0;
    for (int m = 1; m <= n - 2; m++)
        x[m] = c[m] * x[m - 1] + d[m];
}

int main(void)
{
    static double u[N][N], v[N][N], p[N][N], q[N][N], a[N][N], b[N][N];
    const double r = 0.375;

    for (int i = 1; i < N - 1; i++)
        for (int j = 1; j < N - 1; j++)
            u[i][j] = a[i][j] = (double)((unsigned)(i * 37 + j * 101) % 19u);
    adi(T, N, r, u, v, p, q);

    for (int t = 0; t < 2 * T; t++) {
        /* half a step, transposed, so that the same code does the other half */
        for (int i = 1; i < N - 1; i++) {
            double rhs[N];
            for (int j = 1; j < N - 1; j++)
                rhs[j] = a[i][j] + r * (a[i - 1][j] - 2.0 * a[i][j] + a[i + 1][j]);
            line(N, r, rhs, b[i]);
        }
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                a[i][j] = b[j][i];
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            if (!(fabs(u[i][j] - a[i][j]) <= 1e-9)) {
                printf("adi: mismatch at [%d][%d] got %g expected %g\n", i, j, u[i][j], a[i][j]);
                return 1;
            }
    puts("adi: ok");
    return 0;
}
