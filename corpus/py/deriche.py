"""Recursive edge filter after Deriche: the derivative along every row, by one filter from the left and one from the
right, then smoothing along every column, from above and from below."""

import numpy as np

from mdh_lift import mdh


@mdh
def deriche(
    h: "int32",
    w: "int32",
    b1: "float32",
    b2: "float32",
    gain: "float32",
    a0: "float32",
    a1: "float32",
    a2: "float32",
    a3: "float32",
    img: "float32[h, w]",
    fwd: "float32[h, w]",
    bwd: "float32[h, w]",
    edge: "float32[h, w]",
):
    xp = np.float32(0)
    yp = np.float32(0)
    ypp = np.float32(0)
    for i in range(h):
        xp = 0.0
        yp = 0.0
        ypp = 0.0
        for j in range(w):
            fwd[i, j] = xp + b1 * yp + b2 * ypp
            xp = img[i, j]
            ypp = yp
            yp = fwd[i, j]
    for i in range(h):
        xp = 0.0
        yp = 0.0
        ypp = 0.0
        for j in range(w - 1, -1, -1):
            bwd[i, j] = xp + b1 * yp + b2 * ypp
            xp = img[i, j]
            ypp = yp
            yp = bwd[i, j]
    for i in range(h):
        for j in range(w):
            edge[i, j] = gain * (fwd[i, j] - bwd[i, j])

    for j in range(w):
        xp = 0.0
        yp = 0.0
        ypp = 0.0
        for i in range(h):
            fwd[i, j] = a0 * edge[i, j] + a1 * xp + b1 * yp + b2 * ypp
            xp = edge[i, j]
            ypp = yp
            yp = fwd[i, j]
    for j in range(w):
        xp = 0.0
        xpp = 0.0
        yp = 0.0
        ypp = 0.0
        for i in range(h - 1, -1, -1):
            bwd[i, j] = a2 * xp + a3 * xpp + b1 * yp + b2 * ypp
            xpp = xp
            xp = edge[i, j]
            ypp = yp
            yp = bwd[i, j]
    for i in range(h):
        for j in range(w):
            edge[i, j] = fwd[i, j] + bwd[i, j]
