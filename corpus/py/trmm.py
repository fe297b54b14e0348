"""In-place product with a lower triangular matrix, B = alpha L B, from the last row up."""

from mdh_lift import mdh


@mdh
def trmm(m: "int32", n: "int32", alpha: "float32", L: "float32[m, m]", B: "float32[m, n]"):
    for i in range(m - 1, -1, -1):
        for j in range(n):
            acc = 0.0
            for k in range(i + 1):
                acc += L[i, k] * B[k, j]
            B[i, j] = alpha * acc
