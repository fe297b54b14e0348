"""Covariance matrix of m variables over n > 1 observations; the data are centred in place."""

import numpy as np

from mdh_lift import mdh


@mdh
def covariance(n: "int32", m: "int32", data: "restrict float32[:, m]", mean: "restrict float32[:]", cov: "restrict float32[:, m]"):
    for j in range(m):
        sum = 0.0
        for i in range(n):
            sum += data[i, j]
        mean[j] = sum / np.float32(n)

    for i in range(n):
        for j in range(m):
            data[i, j] -= mean[j]

    for i in range(m):
        for j in range(i + 1):
            sum = 0.0
            for k in range(n):
                sum += data[k, i] * data[k, j]
            cov[i, j] = sum / np.float32(n - 1)
            cov[j, i] = cov[i, j]
