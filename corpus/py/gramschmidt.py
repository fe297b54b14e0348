"""Modified Gram-Schmidt: A = Q R with orthonormal columns of Q and upper triangular R; A is used up."""

import numpy as np

from mdh_lift import mdh


@mdh
def gramschmidt(m: "int32", n: "int32", A: "float32[m, n]", R: "float32[n, n]", Q: "float32[m, n]"):
    nrm = np.float32(0)
    for k in range(n):
        nrm = np.float32(0)
        for i in range(m):
            nrm += A[i, k] * A[i, k]
        R[k, k] = np.sqrt(nrm)
        for i in range(m):
            Q[i, k] = A[i, k] / R[k, k]

        # take the new direction out of the columns that remain
        for j in range(k + 1, n):
            R[k, j] = 0.0
            for i in range(m):
                R[k, j] += Q[i, k] * A[i, j]
            for i in range(m):
                A[i, j] = A[i, j] - Q[i, k] * R[k, j]
