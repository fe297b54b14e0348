"""Cholesky factor of a symmetric positive definite matrix, in place in the lower triangle, column by column."""

from math import sqrt

from mdh_lift import mdh


@mdh
def cholesky(n: "int32", A: "float64[n, n]"):
    acc = 0.0
    for j in range(n):
        acc = A[j, j]
        for k in range(j):
            acc -= A[j, k] * A[j, k]
        A[j, j] = sqrt(acc)

        for i in range(j + 1, n):
            acc = A[i, j]
            for k in range(j):
                acc -= A[i, k] * A[j, k]
            A[i, j] = acc / A[j, j]
