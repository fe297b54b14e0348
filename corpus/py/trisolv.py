"""Forward substitution: L x = b with a lower triangular L; x itself holds the running sums."""

from mdh_lift import mdh


@mdh
def trisolv(n: "int32", L: "float64[n, n]", x: "float64[n]", b: "float64[n]"):
    for i in range(n):
        x[i] = b[i]
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] = x[i] / L[i, i]
