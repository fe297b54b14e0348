"""mcc.c: a multi-channel convolution of constant size."""

from mdh_lift import mdh

N, P, Q, K, R, S, C = 2, 7, 5, 11, 3, 3, 13
H = P + R - 1
W = Q + S - 1


@mdh
def mcc(out: "float32[:, P, Q, K]", img: "float32[:, H, W, C]", flt: "float32[:, R, S, C]"):
    for n in range(N):
        for p in range(P):
            for q in range(Q):
                for k in range(K):
                    for r in range(R):
                        for s in range(S):
                            for c in range(C):
                                out[n, p, q, k] += img[n, p + r, q + s, c] * flt[k, r, s, c]
