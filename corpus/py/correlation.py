"""Correlation matrix of m variables over n observations; the data are standardised in place."""

from math import sqrt

from mdh_lift import mdh


@mdh
def correlation(
    n: "int32",
    m: "int32",
    data: "float64[n, m]",
    mean: "float64[m]",
    dev: "float64[m]",
    corr: "float64[m, m]",
):
    for j in range(m):
        mean[j] = 0.0
        for i in range(n):
            mean[j] += data[i, j]
        mean[j] /= n

    for j in range(m):
        dev[j] = 0.0
        for i in range(n):
            dev[j] += (data[i, j] - mean[j]) * (data[i, j] - mean[j])
        dev[j] = sqrt(dev[j] / n)
        dev[j] = 1.0 if dev[j] < 1e-6 else dev[j]

    for i in range(n):
        for j in range(m):
            data[i, j] = (data[i, j] - mean[j]) / (sqrt(n) * dev[j])

    # upper triangle, mirrored
    for i in range(m):
        corr[i, i] = 1.0
        for j in range(i + 1, m):
            corr[i, j] = 0.0
            for k in range(n):
                corr[i, j] += data[k, i] * data[k, j]
            corr[j, i] = corr[i, j]
