"""Relaxation of a line over time: from a to b and from b to a in every step; the ends keep their values."""

from mdh_lift import mdh


@mdh
def jacobi1d_time(steps: "int32", n: "int32", a: "float64[:]", b: "float64[:]"):
    for t in range(steps):
        for i in range(1, n - 1):
            b[i] = 0.25 * (a[i - 1] + 2.0 * a[i] + a[i + 1])
        for i in range(1, n - 1):
            a[i] = 0.25 * (b[i - 1] + 2.0 * b[i] + b[i + 1])
