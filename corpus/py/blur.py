"""Box blur in two stages, three pixels along the rows, then three along the columns; integer pixels."""

import numpy as np

from mdh_lift import mdh, truncdiv


@mdh
def blur(h: "int32", w: "int32", img: "restrict uint16[h, w]", along: "restrict uint16[h, w]", out: "restrict uint16[h, w]"):
    for y in range(h):
        for x in range(1, w - 1):
            along[y, x] = truncdiv(np.int32(img[y, x - 1]) + img[y, x] + img[y, x + 1], 3)
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            out[y, x] = truncdiv(np.int32(along[y - 1, x]) + along[y, x] + along[y + 1, x], 3)
