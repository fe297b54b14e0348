"""Gravity on each of n bodies by all of them, softened so that a body feels nothing of itself."""

from math import sqrt

from mdh_lift import mdh


@mdh
def nbody(n: "int32", soft: "float64", pos: "float64[:, 3]", mass: "float64[:]", acc: "float64[:, 3]"):
    for i in range(n):
        ax = 0.0
        ay = 0.0
        az = 0.0

        for j in range(n):
            dx = pos[j, 0] - pos[i, 0]
            dy = pos[j, 1] - pos[i, 1]
            dz = pos[j, 2] - pos[i, 2]
            r2 = dx * dx + dy * dy + dz * dz + soft
            pull = mass[j] / (r2 * sqrt(r2))

            ax += pull * dx
            ay += pull * dy
            az += pull * dz
        acc[i, 0] = ax
        acc[i, 1] = ay
        acc[i, 2] = az
