"""conv2d.c: a two-dimensional convolution over flat arrays."""

import numpy as np

from mdh_lift import mdh


@mdh("""name(conv) combine_ops(cc, cc, pw(+), pw(+)) out(out) inp(img, flt)
        sizes(rows=224, cols=224, frows=5, fcols=5) sizes(rows=4096, cols=4096, frows=5, fcols=5)""")
def conv2d(out: "restrict float32[:]", img: "restrict float32[:]", flt: "restrict float32[:]",
           rows: "int32", cols: "int32", frows: "int32", fcols: "int32"):
    for p in range(rows):
        for q in range(cols):
            acc = np.float32(0)
            for r in range(frows):
                for s in range(fcols):
                    acc += img[(p + r) * (cols + fcols - 1) + (q + s)] * flt[r * fcols + s]
            out[p * cols + q] = acc
