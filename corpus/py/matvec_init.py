"""matvec_init.c: a product with a matrix and one with its transpose."""

from mdh_lift import mdh


@mdh("name(forward)")
def matvec_pair(A: "float64[:]", v: "float64[:]", w: "float64[:]", n: "uint64", kk: "uint64"):
    for i in range(n):
        w[i] = 0
        for k in range(kk):
            w[i] += A[i * kk + k] * v[k]


forward = matvec_pair


@mdh("name(backward) combine_ops(k: cc, i: pw(+))")
def matvec_pair(A: "float64[:]", u: "float64[:]", z: "float64[:]", n: "uint64", kk: "uint64"):
    for k in range(kk):
        z[k] = 0
        for i in range(n):
            z[k] = z[k] + u[i] * A[i * kk + k]


backward = matvec_pair
