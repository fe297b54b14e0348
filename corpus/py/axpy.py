"""axpy.c: a multiple of a vector, added."""

from mdh_lift import mdh


@mdh
def axpy(n: "uint64", a: "float32", x: "float32[:]", y: "float32[:]"):
    for i in range(n):
        y[i] += a * x[i]
