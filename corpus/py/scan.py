"""scan.c: a prefix sum."""

import numpy as np

from mdh_lift import mdh


@mdh
def prefix_sum(out: "float32[:]", a: "float32[:]", n: "int32"):
    s = np.float32(0)
    for i in range(n):
        s += a[i]
        out[i] = s
