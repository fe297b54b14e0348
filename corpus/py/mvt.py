"""Product of a matrix with one vector and of its transpose with another, both onto old values."""

from mdh_lift import mdh


@mdh
def mvt(
    n: "int64",
    a: "float32[:]",
    x1: "float32[:]",
    x2: "float32[:]",
    y1: "float32[:]",
    y2: "float32[:]",
):
    for i in range(n):
        for j in range(n):
            x1[i] += a[i * n + j] * y1[j]
    for i in range(n):
        for j in range(n):
            x2[j] += a[i * n + j] * y2[i]
