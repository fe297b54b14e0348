"""Linear recurrence with varying coefficients, x[i] from x[i - 1]."""

from mdh_lift import mdh


@mdh
def linear_recurrence(n: "int64", a: "float64[:]", b: "float64[:]", x: "float64[:]"):
    for i in range(1, n):
        x[i] = a[i] * x[i - 1] + b[i]
