"""Maximum over overlapping windows that may hang over the border; channels first."""

import numpy as np

from mdh_lift import mdh

FLT_MAX = 3.4028234663852886e38
SIZE = 3
STRIDE = 2
PAD = 1


@mdh
def max_pool(c: "int32", h: "int32", w: "int32", oh: "int32", ow: "int32", img: "float32[c, h, w]", out: "float32[c, oh, ow]"):
    dy: "int32"
    dx: "int32"
    for ch in range(c):
        for y in range(oh):
            for x in range(ow):
                best = -FLT_MAX
                for dy in range(SIZE):
                    for dx in range(SIZE):
                        iy = STRIDE * y + dy - PAD
                        ix = STRIDE * x + dx - PAD
                        if iy >= 0 and iy < h and ix >= 0 and ix < w:
                            best = np.fmax(best, img[ch, iy, ix])
                out[ch, y, x] = best
