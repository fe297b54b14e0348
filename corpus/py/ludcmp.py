"""Linear equations A x = b: LU factors in place row by row, then forward and backward substitution."""

from mdh_lift import mdh


@mdh
def ludcmp(n: "int32", A: "restrict float64[n, n]", b: "restrict float64[n]", x: "restrict float64[n]", y: "restrict float64[n]"):
    for i in range(n):
        for j in range(i):
            w = A[i, j]
            for k in range(j):
                w -= A[i, k] * A[k, j]
            A[i, j] = w / A[j, j]
        for j in range(i, n):
            w = A[i, j]
            for k in range(i):
                w -= A[i, k] * A[k, j]
            A[i, j] = w

    # L y = b
    for i in range(n):
        w = b[i]
        for j in range(i):
            w -= A[i, j] * y[j]
        y[i] = w

    # U x = y
    for i in range(n - 1, -1, -1):
        w = y[i]
        for j in range(i + 1, n):
            w -= A[i, j] * x[j]
        x[i] = w / A[i, i]
