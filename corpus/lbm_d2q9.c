/* One step of a lattice Boltzmann flow with nine directions on a torus: collide in place, then stream. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef H
#define H 37
#endif
#ifndef W
#define W 53
#endif

void lbm_d2q9(int h, int w, double omega, const int *cy, const int *cx, const double *weight,
              double f[restrict 9][h][w], double g[restrict 9][h][w])
{
    int q, y, x;

#pragma mdh
    {
        for (y = 0; y < h; y++)
            for (x = 0; x < w; x++) {
                double rho = 0.0, vy = 0.0, vx = 0.0;

                for (q = 0; q < 9; q++) {
                    rho += f[q][y][x];
                    vy += cy[q] * f[q][y][x];
                    vx += cx[q] * f[q][y][x];
                }
                vy /= rho;
                vx /= rho;
                for (q = 0; q < 9; q++) {
                    double cv = cy[q] * vy + cx[q] * vx;
                    double equal = weight[q] * rho * (1.0 + 3.0 * cv + 4.5 * cv * cv - 1.5 * (vy * vy + vx * vx));
                    f[q][y][x] += omega * (equal - f[q][y][x]);
                }
            }
        for (q = 0; q < 9; q++)
            for (y = 0; y < h; y++)
                for (x = 0; x < w; x++) {
                    int from_y = y - cy[q], from_x = x - cx[q];
                    from_y = from_y < 0 ? from_y + h : from_y >= h ? from_y - h : from_y;
                    from_x = from_x < 0 ? from_x + w : from_x >= w ? from_x - w : from_x;
                    g[q][y][x] = f[q][from_y][from_x];
                }
    }
}

/* Equilibrium by Hermite polynomials of the direction. */
static double hermite(double rho, double share, double cy, double cx, double vy, double vx)
{
    const double first = cy * vy + cx * vx;
    const double second = (cy * cy - 1.0 / 3) * vy * vy + (cx * cx - 1.0 / 3) * vx * vx + 2.0 * cy * cx * vy * vx;

    return share * rho + 3.0 * share * rho * (first + 1.5 * second);
}

int main(void)
{
    static const int cy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1}, cx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
    double weight[9];
    double (*f)[H][W] = malloc(sizeof(double[9][H][W])), (*g)[H][W] = malloc(sizeof(double[9][H][W]));
    double (*old)[H][W] = malloc(sizeof(double[9][H][W])), (*pushed)[H][W] = malloc(sizeof(double[9][H][W]));
    const double omega = 1.25;
    int bad = 0;

    if (!f || !g || !old || !pushed)
        return 2;
    for (int q = 0; q < 9; q++) {
        const int along = cy[q] * cy[q] + cx[q] * cx[q];
        weight[q] = along == 0 ? 4.0 / 9 : along == 1 ? 1.0 / 9 : 1.0 / 36;
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                const unsigned noise = (unsigned)(q * 7 + y * 3 + x * 5) % 11u;
                f[q][y][x] = old[q][y][x] = weight[q] * (1.0 + 0.01 * noise);
                g[q][y][x] = -1.0;
            }
    }
    lbm_d2q9(H, W, omega, cy, cx, weight, f, g);
    for (int x = 0; x < W; x++)                 /* every cell pushes what it has to its neighbours */
        for (int y = 0; y < H; y++) {
            double rho = 0.0, vy, vx;
            for (int q = 8; q >= 0; q--)
                rho += old[q][y][x];
            vy = (old[2][y][x] + old[5][y][x] + old[6][y][x] - old[4][y][x] - old[7][y][x] - old[8][y][x]) / rho;
            vx = (old[1][y][x] + old[5][y][x] + old[8][y][x] - old[3][y][x] - old[6][y][x] - old[7][y][x]) / rho;
            for (int q = 0; q < 9; q++) {
                const double equal = hermite(rho, weight[q], cy[q], cx[q], vy, vx);
                pushed[q][(y + cy[q] + H) % H][(x + cx[q] + W) % W] = (1.0 - omega) * old[q][y][x] + omega * equal;
            }
        }
    for (int q = 0; q < 9 && !bad; q++)
        for (int y = 0; y < H && !bad; y++)
            for (int x = 0; x < W && !bad; x++)
                if (!(fabs(g[q][y][x] - pushed[q][y][x]) <= 1e-12)) {
                    printf("lbm_d2q9: mismatch at [%d][%d][%d] got %.15g expected %.15g\n", q, y, x, g[q][y][x],
                           pushed[q][y][x]);
                    bad = 1;
                }
    free(f);
    free(g);
    free(old);
    free(pushed);
    if (!bad)
        puts("lbm_d2q9: ok");
    return bad;
}
