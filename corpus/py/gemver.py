"""Two rank-one updates of a matrix, then x += beta A^T y + z and w += alpha A x with the updated A and x."""

from mdh_lift import mdh


@mdh
def gemver(
    n: "int32",
    alpha: "float64",
    beta: "float64",
    A: "float64[:]",
    u1: "float64[:]",
    v1: "float64[:]",
    u2: "float64[:]",
    v2: "float64[:]",
    w: "float64[:]",
    x: "float64[:]",
    y: "float64[:]",
    z: "float64[:]",
):
    # A := A + u1 v1^T + u2 v2^T
    for i in range(n):
        for j in range(n):
            A[i * n + j] = A[i * n + j] + u1[i] * v1[j] + u2[i] * v2[j]

    for i in range(n):
        for j in range(n):
            x[i] += beta * A[j * n + i] * y[j]
        x[i] += z[i]

    for i in range(n):
        for j in range(n):
            w[i] += alpha * A[i * n + j] * x[j]
