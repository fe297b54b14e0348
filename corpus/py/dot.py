"""dot.c: the dot product."""

import numpy as np

from mdh_lift import mdh


@mdh
def dot(x: "float32[:]", y: "float32[:]", n: "uint64"):
    sum = np.float32(0)
    for i in range(n):
        sum += x[i] * y[i]
    return sum
