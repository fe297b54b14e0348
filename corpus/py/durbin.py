"""Durbin's recursion for the Yule-Walker equations: T y = -r with a symmetric Toeplitz matrix T."""

from mdh_lift import mdh


@mdh
def durbin(n: "int32", r: "float64[:]", y: "float64[:]", z: "float64[:]"):
    y[0] = -r[0]
    beta = 1.0
    alpha = -r[0]

    for k in range(1, n):
        beta = (1.0 - alpha * alpha) * beta
        sum = 0.0
        for i in range(k):
            sum += r[k - i - 1] * y[i]
        alpha = -(r[k] + sum) / beta

        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha
