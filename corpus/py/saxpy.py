"""y = a x + y in single precision."""

from mdh_lift import mdh


@mdh
def saxpy(n: "int32", a: "float32", x: "float32[:]", y: "float32[:]"):
    for i in range(n):
        y[i] = a * x[i] + y[i]
