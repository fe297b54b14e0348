"""Bilateral filter: a mean weighted by nearness in place and in value, normalised; pixels beyond the border are those
of the border."""

import numpy as np

from mdh_lift import mdh


def clamp(v: "int32", low: "int32", high: "int32") -> "int32":
    return low if v < low else high if v > high else v


@mdh
def bilateral(
    h: "int32", w: "int32", r: "int32", space: "float32", tone: "float32", img: "float32[h, w]", out: "restrict float32[h, w]"
):
    for y in range(h):
        for x in range(w):
            sum = 0.0
            norm = 0.0

            for dy in range(-r, r + 1):
                for dx in range(-r, r + 1):
                    v = img[clamp(y + dy, 0, h - 1), clamp(x + dx, 0, w - 1)]
                    d = v - img[y, x]
                    weight = np.exp(-space * np.float32(dy * dy + dx * dx) - tone * d * d)

                    sum += weight * v
                    norm += weight
            out[y, x] = sum / norm
