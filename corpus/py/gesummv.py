"""Sum of two matrix-vector products, y = alpha A x + beta B x, in one sweep with two accumulators."""

from mdh_lift import mdh


@mdh
def gesummv(
    n: "int32",
    alpha: "float32",
    beta: "float32",
    A: "float32[:, n]",
    B: "float32[:, n]",
    x: "float32[:]",
    y: "float32[:]",
):
    for i in range(n):
        s = 0.0
        t = 0.0
        for j in range(n):
            s = A[i, j] * x[j] + s
            t = B[i, j] * x[j] + t
        y[i] = alpha * s + beta * t
