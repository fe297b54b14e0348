"""jacobi1d.c: three points of a line."""

from mdh_lift import mdh


@mdh
def jacobi1d(next: "float64[:]", prev: "float64[:]", n: "int32", c: "float64"):
    for i in range(1, n + 1):
        next[i] = c * (prev[i - 1] + prev[i] + prev[i + 1])
