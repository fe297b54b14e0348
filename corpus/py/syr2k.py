"""Symmetric rank-2k update of the lower triangle, C = alpha (A B^T + B A^T) + beta C."""

from mdh_lift import mdh


@mdh
def syr2k(
    n: "int32",
    p: "int32",
    alpha: "float32",
    beta: "float32",
    A: "float32[n, p]",
    B: "float32[n, p]",
    C: "float32[n, n]",
):
    for i in range(n):
        for j in range(i + 1):
            C[i, j] = beta * C[i, j]

    for i in range(n):
        for j in range(i + 1):
            for k in range(p):
                C[i, j] += alpha * (A[i, k] * B[j, k] + B[i, k] * A[j, k])
