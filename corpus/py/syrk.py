"""Symmetric rank-k update of the lower triangle, C = alpha A A^T + beta C; linearised arrays."""

from mdh_lift import mdh


@mdh
def syrk(n: "uint64", p: "uint64", alpha: "float64", A: "restrict float64[:]", beta: "float64", C: "restrict float64[:]"):
    for i in range(n):
        for j in range(i + 1):
            dot = 0.0
            for k in range(p):
                dot += A[i * p + k] * A[j * p + k]
            C[i * n + j] = alpha * dot + beta * C[i * n + j]
