"""Three products, G = (A B) (C D), of constant extents."""

from mdh_lift import mdh

M = 61
N = 53
P = 59
Q = 67
R = 47


@mdh
def mm3(
    A: "float64[M, P]",
    B: "float64[P, N]",
    C: "float64[N, R]",
    D: "float64[R, Q]",
    E: "float64[M, N]",
    F: "float64[N, Q]",
    G: "float64[M, Q]",
):
    for i in range(M):
        for j in range(N):
            E[i, j] = 0.0
            for k in range(P):
                E[i, j] = E[i, j] + A[i, k] * B[k, j]
    for i in range(N):
        for j in range(Q):
            F[i, j] = 0.0
            for k in range(R):
                F[i, j] = F[i, j] + C[i, k] * D[k, j]
    for i in range(M):
        for j in range(Q):
            G[i, j] = 0.0
            for k in range(N):
                G[i, j] = G[i, j] + E[i, k] * F[k, j]
