"""mcc_strided.c: a strided convolution over flat arrays."""

from numpy import float32

from mdh_lift import mdh

SH = 2
SW = 2


@mdh
def mcc_strided(out: "restrict float32[:]", img: "restrict float32[:]", flt: "restrict float32[:]",
                nn: "int32", np: "int32", nq: "int32", nk: "int32", nr: "int32", ns: "int32", nc: "int32",
                height: "int32", width: "int32"):
    for n in range(nn):
        for p in range(np):
            for q in range(nq):
                for k in range(nk):
                    sum = float32(0)
                    for r in range(nr):
                        for s in range(ns):
                            for c in range(nc):
                                sum += (img[((n * height + (SH * p + r)) * width + (SW * q + s)) * nc + c]
                                        * flt[((k * nr + r) * ns + s) * nc + c])
                    out[((n * np + p) * nq + q) * nk + k] = sum
