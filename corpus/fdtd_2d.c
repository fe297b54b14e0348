/* Waves in a box with conducting walls: the electric field on the edges of the cells, the magnetic field in them,
   stepped in turn; the left wall is driven. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef NX
#define NX 53
#endif
#ifndef NY
#define NY 47
#endif
#ifndef T
#define T 20
#endif

void fdtd_2d(int steps, int nx, int ny, float ce, float ch, const float *restrict pulse,
             float (*restrict ex)[ny + 1], float (*restrict ey)[ny], float (*restrict hz)[ny])
{
#pragma mdh
    for (int t = 0; t < steps; t++) {
        for (int j = 0; j < ny; j++)
            ey[0][j] = pulse[t];
        for (int i = 0; i < nx; i++)
            for (int j = 1; j < ny; j++)
                ex[i][j] += ce * (hz[i][j] - hz[i][j - 1]);
        for (int i = 1; i < nx; i++)
            for (int j = 0; j < ny; j++)
                ey[i][j] -= ce * (hz[i][j] - hz[i - 1][j]);
        for (int i = 0; i < nx; i++)
            for (int j = 0; j < ny; j++)
                hz[i][j] += ch * (ex[i][j + 1] - ex[i][j] - ey[i + 1][j] + ey[i][j]);
    }
}

int main(void)
{
    static float ex[NX][NY + 1], ey[NX + 1][NY], hz[NX][NY], pulse[T + 1];
    static double dx[NX][NY + 1], dy[NX + 1][NY], dz[NX][NY];
    const float ce = 0.5f, ch = 0.625f;

    for (int t = 0; t < T; t++)
        pulse[t] = (float)(t % 5) - 2.0f;
    for (int i = 0; i < NX; i++)
        for (int j = 0; j < NY; j++)
            dz[i][j] = hz[i][j] = (float)((i * 5 + j * 3) % 7) - 3.0f;
    fdtd_2d(T, NX, NY, ce, ch, pulse, ex, ey, hz);

    /* every cell gives its magnetic field to its four edges, every edge its electric field to its two cells */
    for (int t = 0; t < T; t++) {
        for (int j = 0; j < NY; j++)
            for (int i = 0; i < NX; i++) {
                dx[i][j] += j > 0 ? ce * dz[i][j] : 0.0;
                dx[i][j + 1] -= j + 1 < NY ? ce * dz[i][j] : 0.0;
                dy[i][j] -= i > 0 ? ce * dz[i][j] : 0.0;
                dy[i + 1][j] += i + 1 < NX ? ce * dz[i][j] : 0.0;
            }
        for (int j = 0; j < NY; j++)
            dy[0][j] = pulse[t];
        for (int i = 0; i < NX; i++)
            for (int j = 1; j < NY; j++) {
                dz[i][j - 1] += ch * dx[i][j];
                dz[i][j] -= ch * dx[i][j];
            }
        for (int i = 0; i < NX; i++)
            for (int j = 0; j < NY; j++) {
                dz[i][j] += ch * dy[i][j];
                if (i > 0)
                    dz[i - 1][j] -= ch * dy[i][j];
            }
    }
    for (int i = 0; i < NX; i++)
        for (int j = 0; j < NY; j++)
            if (!(fabs(hz[i][j] - dz[i][j]) <= 1e-3 && fabs(ex[i][j] - dx[i][j]) <= 1e-3
                  && fabs(ey[i][j] - dy[i][j]) <= 1e-3)) {
                printf("fdtd_2d: mismatch at [%d][%d] got (%g, %g, %g) expected (%g, %g, %g)\n", i, j,
                       ex[i][j], ey[i][j], hz[i][j], dx[i][j], dy[i][j], dz[i][j]);
                return 1;
            }
    puts("fdtd_2d: ok");
    return 0;
}
