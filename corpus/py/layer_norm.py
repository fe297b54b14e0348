"""Layer normalisation: every row to mean 0 and variance 1, then scaled and shifted by column."""

from math import sqrt

from mdh_lift import mdh


@mdh
def layer_norm(
    rows: "int32",
    cols: "int32",
    eps: "float64",
    x: "float64[:]",
    scale: "float64[:]",
    shift: "float64[:]",
    y: "float64[:]",
):
    mean = 0.0
    var = 0.0
    inv = 0.0
    for i in range(rows):
        mean = 0.0
        for j in range(cols):
            mean += x[i * cols + j]
        mean /= cols

        var = 0.0
        for j in range(cols):
            var += (x[i * cols + j] - mean) * (x[i * cols + j] - mean)
        var /= cols

        inv = 1.0 / sqrt(var + eps)
        for j in range(cols):
            y[i * cols + j] = (x[i * cols + j] - mean) * inv * scale[j] + shift[j]
