"""Waves in a box with conducting walls: the electric field on the edges of the cells, the magnetic field in them,
stepped in turn; the left wall is driven."""

from mdh_lift import mdh


@mdh
def fdtd_2d(
    steps: "int32",
    nx: "int32",
    ny: "int32",
    ce: "float32",
    ch: "float32",
    pulse: "restrict float32[:]",
    ex: "restrict float32[:, ny + 1]",
    ey: "restrict float32[:, ny]",
    hz: "restrict float32[:, ny]",
):
    for t in range(steps):
        for j in range(ny):
            ey[0, j] = pulse[t]
        for i in range(nx):
            for j in range(1, ny):
                ex[i, j] += ce * (hz[i, j] - hz[i, j - 1])
        for i in range(1, nx):
            for j in range(ny):
                ey[i, j] -= ce * (hz[i, j] - hz[i - 1, j])
        for i in range(nx):
            for j in range(ny):
                hz[i, j] += ch * (ex[i, j + 1] - ex[i, j] - ey[i + 1, j] + ey[i, j])
