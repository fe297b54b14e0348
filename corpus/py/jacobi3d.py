"""jacobi3d.c: seven points of a grid in a flat array."""

import numpy as np

from mdh_lift import mdh


@mdh
def jacobi3d(out: "restrict float32[:]", in_: "restrict float32[:]", n1: "uint64", n2: "uint64", n3: "uint64"):
    c = np.float32(0.125)

    for i in range(n1):
        for j in range(n2):
            for k in range(n3):
                centre = in_[((i + 1) * (n2 + 2) + (j + 1)) * (n3 + 2) + (k + 1)]
                x = (in_[(i * (n2 + 2) + (j + 1)) * (n3 + 2) + (k + 1)]
                     + in_[((i + 2) * (n2 + 2) + (j + 1)) * (n3 + 2) + (k + 1)])
                y = (in_[((i + 1) * (n2 + 2) + j) * (n3 + 2) + (k + 1)]
                     + in_[((i + 1) * (n2 + 2) + (j + 2)) * (n3 + 2) + (k + 1)])
                z = (in_[((i + 1) * (n2 + 2) + (j + 1)) * (n3 + 2) + k]
                     + in_[((i + 1) * (n2 + 2) + (j + 1)) * (n3 + 2) + (k + 2)])

                out[(i * n2 + j) * n3 + k] = c * (centre + x + y + z)
