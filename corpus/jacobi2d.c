/* One five-point Jacobi step on two static grids; nothing is passed, all extents are macros. */
#include <stdio.h>

#ifndef N1
#define N1 127
#endif
#ifndef N2
#define N2 131
#endif

static float grid[N1 + 2][N2 + 2];
float result[N1][N2];

#define COEFF 0.25f

void jacobi2d(void)
{
#pragma mdh
    for (int i = 0; i < N1; i++) {
        for (int j = 0; j < N2; j++) {
            /* north, west, centre, east, south */
            result[i][j] = COEFF * (grid[i + 0][j + 1] + grid[i + 1][j + 0] + grid[i + 1][j + 1]
                                    + grid[i + 1][j + 2] + grid[i + 2][j + 1]);
        }
    }
}

int main(void)
{
    for (int i = 0; i < N1 + 2; i++)
        for (int j = 0; j < N2 + 2; j++)
            grid[i][j] = (float)(((unsigned)i * 131u + (unsigned)j * 7919u + (unsigned)i * (unsigned)j) % 23u) - 11.0f;

    jacobi2d();

    for (int i = 0; i < N1; i++)
        for (int j = 0; j < N2; j++) {
            float expected = 0.0f;
            for (int dj = -1; dj <= 1; dj++)
                for (int di = -1; di <= 1; di++)
                    if (di == 0 || dj == 0)
                        expected += grid[i + 1 + di][j + 1 + dj];
            expected /= 4.0f;
            if (result[i][j] != expected) {
                printf("jacobi2d: mismatch at [%d][%d] got %g expected %g\n", i, j, result[i][j], expected);
                return 1;
            }
        }
    puts("jacobi2d: ok");
    return 0;
}
