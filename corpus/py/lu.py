"""LU factors in place, without pivoting, looking right: divide a column, then update what is right and below."""

from mdh_lift import mdh


@mdh
def lu(n: "int32", a: "float64[:]"):
    for k in range(n):
        for i in range(k + 1, n):
            a[i * n + k] /= a[k * n + k]
            for j in range(k + 1, n):
                a[i * n + j] -= a[i * n + k] * a[k * n + j]
