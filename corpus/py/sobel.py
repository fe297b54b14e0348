"""Strength of edges after Sobel on bytes: absolute gradients of both directions, added and cut off at 255."""

import numpy as np

from mdh_lift import mdh


@mdh
def sobel(h: "int32", w: "int32", img: "restrict uint8[:]", out: "restrict uint8[:]"):
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            gx = (
                np.int32(img[(y - 1) * w + x + 1]) + 2 * np.int32(img[y * w + x + 1]) + img[(y + 1) * w + x + 1]
                - img[(y - 1) * w + x - 1] - 2 * np.int32(img[y * w + x - 1]) - img[(y + 1) * w + x - 1]
            )  # fmt: skip
            gy = (
                np.int32(img[(y + 1) * w + x - 1]) + 2 * np.int32(img[(y + 1) * w + x]) + img[(y + 1) * w + x + 1]
                - img[(y - 1) * w + x - 1] - 2 * np.int32(img[(y - 1) * w + x]) - img[(y - 1) * w + x + 1]
            )  # fmt: skip
            out[y * w + x] = (
                (-gx if gx < 0 else gx) + (-gy if gy < 0 else gy)
                if (-gx if gx < 0 else gx) + (-gy if gy < 0 else gy) < 255
                else 255
            )
