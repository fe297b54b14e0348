"""The inverse in place, by Gauss and Jordan, without pivoting: every row but one loses its multiple of that one."""

from mdh_lift import mdh


@mdh
def invert(n: "int32", a: "float64[n, n]"):
    for k in range(n):
        pivot = 1.0 / a[k, k]
        a[k, k] = 1.0
        for j in range(n):
            a[k, j] *= pivot
        for i in range(n):
            if i != k:
                factor = a[i, k]
                a[i, k] = 0.0
                for j in range(n):
                    a[i, j] -= factor * a[k, j]
