"""int8_dot.c: a dot product of bytes."""

import numpy as np

from mdh_lift import mdh


@mdh
def int8_dot(a: "restrict int8[:]", b: "restrict int8[:]", n: "int32"):
    acc = np.int32(0)
    for i in range(n):
        acc += np.int32(a[i]) * np.int32(b[i])
    return acc
