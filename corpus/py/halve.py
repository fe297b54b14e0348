"""A grey picture at half its size: every pixel the rounded mean of a square of four."""

import numpy as np

from mdh_lift import mdh


@mdh
def halve(h: "int32", w: "int32", img: "restrict uint8[2 * h, 2 * w]", out: "restrict uint8[h, w]"):
    for y in range(h):
        for x in range(w):
            out[y, x] = (np.int32(img[2 * y, 2 * x]) + img[2 * y, 2 * x + 1]
                         + img[2 * y + 1, 2 * x] + img[2 * y + 1, 2 * x + 1] + 2) >> 2  # fmt: skip
