/* Gravity on each of n bodies by all of them, softened so that a body feels nothing of itself. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 401
#endif

void nbody(int n, double soft, const double (*pos)[3], const double *mass, double (*acc)[3])
{
    int i, j;

#pragma mdh
    for (i = 0; i < n; i++) {
        double ax = 0.0, ay = 0.0, az = 0.0;

        for (j = 0; j < n; j++) {
            const double dx = pos[j][0] - pos[i][0];
            const double dy = pos[j][1] - pos[i][1];
            const double dz = pos[j][2] - pos[i][2];
            const double r2 = dx * dx + dy * dy + dz * dz + soft;
            const double pull = mass[j] / (r2 * sqrt(r2));

            ax += pull * dx;
            ay += pull * dy;
            az += pull * dz;
        }
        acc[i][0] = ax;
        acc[i][1] = ay;
        acc[i][2] = az;
    }
}

int main(void)
{
    double (*pos)[3] = malloc(sizeof(double[N][3])), (*acc)[3] = malloc(sizeof(double[N][3]));
    double (*force)[3] = calloc(N, sizeof(double[3])), *mass = malloc(N * sizeof *mass);
    const double soft = 0.25;
    int bad = 0;

    if (!pos || !acc || !force || !mass)
        return 2;
    for (int i = 0; i < N; i++) {
        for (int c = 0; c < 3; c++)
            pos[i][c] = (double)((unsigned)(3 * i + c) * 2654435761u >> 22) / 16.0;
        mass[i] = (double)(i % 5 + 1);
    }
    nbody(N, soft, (const double (*)[3])pos, mass, acc);
    for (int i = 0; i < N; i++)                 /* every pair once: action and reaction */
        for (int j = 0; j < i; j++) {
            double r2 = soft, pull;
            for (int c = 0; c < 3; c++)
                r2 += (pos[i][c] - pos[j][c]) * (pos[i][c] - pos[j][c]);
            pull = mass[i] * mass[j] * pow(r2, -1.5);
            for (int c = 0; c < 3; c++) {
                force[i][c] += pull * (pos[j][c] - pos[i][c]);
                force[j][c] -= pull * (pos[j][c] - pos[i][c]);
            }
        }
    for (int i = 0; i < N && !bad; i++)
        for (int c = 0; c < 3 && !bad; c++)
            if (!(fabs(acc[i][c] - force[i][c] / mass[i]) <= 1e-9)) {
                printf("nbody: mismatch at [%d][%d] got %g expected %g\n", i, c, acc[i][c], force[i][c] / mass[i]);
                bad = 1;
            }
    free(pos);
    free(acc);
    free(force);
    free(mass);
    if (!bad)
        puts("nbody: ok");
    return bad;
}
