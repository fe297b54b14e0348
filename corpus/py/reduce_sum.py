"""reduce_sum.c: a sum."""

from mdh_lift import mdh


@mdh
def total(x: "float64[:]", n: "int64"):
    s = 0.0
    for i in range(n):
        s = s + x[i]
    return s
