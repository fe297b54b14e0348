"""argmax_payload.c: the greatest element of each row, where it is, and what belongs to it."""

import numpy as np

from mdh_lift import mdh


@mdh
def best_per_row(rows: "int32", cols: "int32", score: "float32[rows, cols]", label: "uint8[cols]",
                 top: "float32[rows]", where: "int32[rows]", who: "uint8[rows]"):
    for r in range(rows):
        max = np.float32(-1e30)
        arg = np.int32(-1)
        payload = np.uint8(0)
        for c in range(cols):
            if score[r, c] > max:
                max = score[r, c]
                arg = np.int32(c)
                payload = label[c]
        top[r] = max
        where[r] = arg
        who[r] = payload
