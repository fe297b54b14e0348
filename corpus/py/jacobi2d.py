"""jacobi2d.c: five points of a grid of constant size."""

import numpy as np

from mdh_lift import mdh

N1 = 127
N2 = 131
COEFF = np.float32(0.25)


@mdh
def jacobi2d(grid: "float32[N1 + 2, N2 + 2]", result: "float32[N1, N2]"):
    for i in range(N1):
        for j in range(N2):
            # north, west, centre, east, south
            result[i, j] = COEFF * (grid[i + 0, j + 1] + grid[i + 1, j + 0] + grid[i + 1, j + 1]
                                    + grid[i + 1, j + 2] + grid[i + 2, j + 1])
