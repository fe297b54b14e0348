"""General matrix product C = alpha A B + beta C: the old result is scaled in place before the products go on top."""

from mdh_lift import mdh


@mdh
def gemm(
    m: "int32",
    n: "int32",
    p: "int32",
    alpha: "float64",
    beta: "float64",
    A: "restrict float64[m, p]",
    B: "restrict float64[p, n]",
    C: "restrict float64[m, n]",
):
    for i in range(m):
        for j in range(n):
            C[i, j] *= beta
            for k in range(p):
                C[i, j] += alpha * A[i, k] * B[k, j]
