"""mcc_capsule.c: a convolution whose elements are matrices."""

from mdh_lift import mdh

MI = 4
MJ = 4
MK = 4
STRIDE = 1


@mdh
def mcc_capsule(nn: "int64", np: "int64", nq: "int64", nk: "int64", nr: "int64", ns: "int64", nc: "int64",
                out: "restrict float32[nn, np, nq, nk, MI, MJ]",
                img: "restrict float32[nn, STRIDE * (np - 1) + nr, STRIDE * (nq - 1) + ns, nc, MI, MK]",
                flt: "restrict float32[nk, nr, ns, nc, MK, MJ]"):
    for n in range(nn):
        for p in range(np):
            for q in range(nq):
                for k in range(nk):
                    for r in range(nr):
                        for s in range(ns):
                            for c in range(nc):
                                for mi in range(MI):
                                    for mj in range(MJ):
                                        for mk in range(MK):
                                            out[n, p, q, k, mi, mj] += (
                                                img[n, p * STRIDE + r, q * STRIDE + s, c, mi, mk]
                                                * flt[k, r, s, c, mk, mj]
                                            )
