"""Softmax of every row, made safe by its maximum."""

import numpy as np

from mdh_lift import mdh


@mdh
def softmax(rows: "int32", cols: "int32", x: "restrict float32[rows, cols]", y: "restrict float32[rows, cols]"):
    for i in range(rows):
        top = -np.inf
        sum = 0.0

        for j in range(cols):
            top = np.fmax(top, x[i, j])
        for j in range(cols):
            y[i, j] = np.exp(x[i, j] - top)
            sum += y[i, j]
        for j in range(cols):
            y[i, j] /= sum
