"""y = A^T (A x): every row of A is used twice, for its product with x and for its share of y."""

from mdh_lift import mdh


@mdh
def atax(m: "int32", n: "int32", A: "float32[m, n]", x: "float32[n]", y: "float32[n]"):
    for j in range(n):
        y[j] = 0
    for i in range(m):
        t = 0.0
        for j in range(n):
            t += A[i, j] * x[j]
        for j in range(n):
            y[j] += A[i, j] * t
