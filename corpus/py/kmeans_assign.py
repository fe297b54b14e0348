"""The nearest centre of every point, the first of equally near ones, and how far it is."""

import numpy as np

from mdh_lift import mdh

FLT_MAX = 3.4028234663852886e38


@mdh
def kmeans_assign(
    n: "int32",
    k: "int32",
    d: "int32",
    point: "float32[:]",
    centre: "float32[:]",
    nearest: "int32[:]",
    distance: "float32[:]",
):
    for i in range(n):
        best = FLT_MAX
        which = np.int32(0)
        for c in range(k):
            far = 0.0
            for x in range(d):
                diff = point[i * d + x] - centre[c * d + x]
                far += diff * diff
            if far < best:
                best = far
                which = c
        nearest[i] = which
        distance[i] = best
