"""Product of every line of a cube with one matrix, in place through a local line: X[r, q, :] = X[r, q, :] W."""

import numpy as np

from mdh_lift import mdh


@mdh
def doitgen(nr: "int32", nq: "int32", ns: "int32", X: "float64[nr, nq, ns]", W: "float64[ns, ns]"):
    line = np.empty(ns, np.float64)
    for r in range(nr):
        for q in range(nq):
            for p in range(ns):
                line[p] = 0.0
                for s in range(ns):
                    line[p] += X[r, q, s] * W[s, p]
            for p in range(ns):
                X[r, q, p] = line[p]
