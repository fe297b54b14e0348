"""A matrix transposed: rows become columns."""

from mdh_lift import mdh


@mdh
def transpose(m: "int32", n: "int32", a: "restrict float32[m, n]", b: "restrict float32[n, m]"):
    for i in range(m):
        for j in range(n):
            b[j, i] = a[i, j]
