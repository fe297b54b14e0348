"""reduce_max.c: the largest element."""

from mdh_lift import mdh


@mdh
def largest(a: "float32[:]", n: "int32"):
    best = a[0]
    for i in range(1, n):
        if a[i] > best:
            best = a[i]
    return best
