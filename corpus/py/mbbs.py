"""mbbs.c: sums of all boxes that start at the top, and the greatest of them."""

import numpy as np

from mdh_lift import mdh


@mdh
def bottom_box_sums(rows: "int32", cols: "int32", a: "float32[rows, cols]", out: "float32[rows]"):
    s = np.float32(0)
    for i in range(rows):
        for j in range(cols):
            s += a[i, j]
        out[i] = s  # the box of rows 0..i


@mdh
def best_box(out: "float32[:]", rows: "int32"):
    best = out[0]
    for i in range(1, rows):
        best = best if best >= out[i] else out[i]
    return best
