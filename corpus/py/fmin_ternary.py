"""fmin_ternary.c: minima per row, and the bounds of all elements."""

import numpy as np

from mdh_lift import mdh

COLS = 211


@mdh
def row_minima(low: "float32[:]", a: "float32[:, COLS]", rows: "int32"):
    for i in range(rows):
        low[i] = 1e30
        for j in range(COLS):
            low[i] = a[i, j] if a[i, j] < low[i] else low[i]


@mdh
def bounds(a: "float32[:]", n: "uint64"):
    l = np.float64(np.inf)
    h = np.float64(-np.inf)
    for i in range(n):
        l = np.fmin(l, a[i])
        h = np.fmax(a[i], h)
    return l, h
