"""matvec.c: accumulates a matrix-vector product."""

from mdh_lift import add, cc, combine_ops, inp, mdh, out, pw


@mdh(combine_ops(i=cc, k=pw(add)), out("w"), inp("M", "v"))
def matvec(n: "int32", k_max: "int32", w: "restrict float32[n]", M: "restrict float32[n, k_max]",
           v: "restrict float32[k_max]"):
    for i in range(n):
        for k in range(k_max):
            w[i] += M[i, k] * v[k]
