"""matmul_t.c: the transposed product of transposed matrices, in flat arrays."""

from mdh_lift import mdh


@mdh
def matmul_transposed(c: "float64[:]", a: "float64[:]", b: "float64[:]", m: "int32", n: "int32", kk: "int32"):
    for i in range(m):
        for j in range(n):
            for k in range(kk):
                c[j * m + i] = c[j * m + i] + a[k * m + i] * b[j * kk + k]
