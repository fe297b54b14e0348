"""The two products of a biconjugate gradient step, q = A p and s = A^T r, in one sweep over A."""

from mdh_lift import mdh


@mdh
def bicg(
    n: "int32",
    m: "int32",
    A: "restrict float64[:, m]",
    p: "restrict float64[:]",
    r: "restrict float64[:]",
    q: "restrict float64[:]",
    s: "restrict float64[:]",
):
    for i in range(m):
        s[i] = 0.0

    for i in range(n):
        q[i] = 0.0
        for j in range(m):
            s[j] = s[j] + r[i] * A[i, j]
            q[i] = q[i] + A[i, j] * p[j]
