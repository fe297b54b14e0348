"""Banded matrix times vector; of every row only the band is kept, its diagonal in column `below`."""

from mdh_lift import mdh


@mdh
def banded_matvec(
    n: "int32",
    below: "int32",
    above: "int32",
    band: "float32[n, below + above + 1]",
    x: "float32[:]",
    y: "float32[:]",
):
    for i in range(n):
        y[i] = 0.0
        for j in range(max(0, i - below), min(n - 1, i + above) + 1):
            y[i] += band[i, j - i + below] * x[j]
