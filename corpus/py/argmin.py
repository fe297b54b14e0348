"""argmin.c: the first of the least elements."""

import numpy as np

from mdh_lift import mdh

INT_MAX = np.int32(2**31 - 1)


@mdh
def nearest(distance: "int32[:]", n: "int64"):
    best = INT_MAX
    at = -1

    for i in range(n):
        if distance[i] < best:
            best = distance[i]
            at = i
    return at, best
