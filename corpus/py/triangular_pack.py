"""The lower triangle of a matrix, row behind row without gaps."""

from mdh_lift import mdh


@mdh
def triangular_pack(n: "int32", a: "restrict float32[:, n]", packed: "restrict float32[:]"):
    for i in range(n):
        for j in range(i + 1):
            packed[i * (i + 1) // 2 + j] = a[i, j]
