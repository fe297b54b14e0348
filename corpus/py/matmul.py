"""matmul.c: accumulates a matrix product of constant size."""

from mdh_lift import mdh

M = 67
N = 71
K = 73


@mdh("( C[i][j] : ++ , ++ , + )")
def matmul(C: "restrict float32[:, N]", A: "restrict float32[:, K]", B: "restrict float32[:, N]"):
    for i in range(M):
        for j in range(N):
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]
