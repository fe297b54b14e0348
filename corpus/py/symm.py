"""C = alpha A B + beta C with a symmetric A of which only the lower triangle is stored; column-major."""

from mdh_lift import mdh


@mdh
def symm(
    m: "int32",
    n: "int32",
    alpha: "float64",
    a: "float64[:]",
    lda: "int32",
    b: "float64[:]",
    ldb: "int32",
    beta: "float64",
    c: "float64[:]",
    ldc: "int32",
):
    for j in range(n):
        for i in range(m):
            acc = 0.0
            for k in range(i):
                acc += a[i + k * lda] * b[k + j * ldb]
            for k in range(i, m):
                acc += a[k + i * lda] * b[k + j * ldb]
            c[i + j * ldc] = beta * c[i + j * ldc] + alpha * acc
