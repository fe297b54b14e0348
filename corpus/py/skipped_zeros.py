"""A product with a matrix most of whose elements are zero: nothing is done, and no row read, for those."""

from mdh_lift import mdh


@mdh
def skipped_zeros(n: "int32", a: "float32[n, n]", b: "float32[n, n]", c: "float32[n, n]"):
    for i in range(n):
        for k in range(n):
            if a[i, k] != 0:
                for j in range(n):
                    c[i, j] += a[i, k] * b[k, j]
