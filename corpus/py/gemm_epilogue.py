"""gemm_epilogue.c: a matrix product, scaled and added."""

import numpy as np

from mdh_lift import mdh


@mdh
def gemm(m: "int32", n: "int32", k: "int32", alpha: "float32", a: "restrict float32[:]", b: "restrict float32[:]",
         beta: "float32", c: "restrict float32[:]"):
    for i in range(m):
        for j in range(n):
            acc = np.float32(0)

            # inner product of a row and a column
            for l in range(k):
                acc = a[i * k + l] * b[l * n + j] + acc

            c[i * n + j] = alpha * acc + beta * c[i * n + j]
