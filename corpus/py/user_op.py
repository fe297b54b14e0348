"""user_op.c: combine operators of the user's, once by reference and once by value."""

import numpy as np

from mdh_lift import cc, combine_ops, mdh, pw

cplx = np.dtype([("re", np.float64), ("im", np.float64)], align=True, metadata={"c_type": "struct cplx"})
span = np.dtype([("min", np.int32), ("max", np.int32)], align=True, metadata={"c_type": "struct range"})

INT_MAX = 2**31 - 1
INT_MIN = -(2**31)


def cmul(res, lhs, rhs):
    re = lhs["re"] * rhs["re"] - lhs["im"] * rhs["im"]
    im = lhs["re"] * rhs["im"] + lhs["im"] * rhs["re"]

    res["re"] = re
    res["im"] = im


def widen(a, b):
    a = a.copy()
    if b["min"] < a["min"]:
        a["min"] = b["min"]
    if b["max"] > a["max"]:
        a["max"] = b["max"]
    return a


@mdh(combine_ops(cc, pw(cmul)))
def row_products(prod: "cplx[:]", z: "cplx[:]", rows: "int32", cols: "int32"):
    for i in range(rows):
        acc = np.void((1.0, 0.0), cplx)
        for j in range(cols):
            cmul(acc, acc, z[i * cols + j])
        prod[i] = acc


@mdh(combine_ops(pw(widen)))
def range_of(a: "int32[:]", n: "int64"):
    r = np.void((INT_MAX, INT_MIN), span)
    for i in range(n):
        one = np.void((a[i], a[i]), span)
        r = widen(r, one)
    return r
