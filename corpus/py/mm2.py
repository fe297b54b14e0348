"""Two products in a row, D = alpha (A B) C + beta D, through an intermediate matrix that the caller provides."""

from mdh_lift import mdh


@mdh
def mm2(
    m: "int32",
    n: "int32",
    p: "int32",
    q: "int32",
    alpha: "float32",
    beta: "float32",
    T: "restrict float32[m, n]",
    A: "restrict float32[m, p]",
    B: "restrict float32[p, n]",
    C: "restrict float32[n, q]",
    D: "restrict float32[m, q]",
):
    # T = alpha A B
    for i in range(m):
        for j in range(n):
            T[i, j] = 0.0
            for k in range(p):
                T[i, j] += alpha * A[i, k] * B[k, j]

    # D = T C + beta D
    for i in range(m):
        for j in range(q):
            D[i, j] *= beta
            for k in range(n):
                D[i, j] += T[i, k] * C[k, j]
