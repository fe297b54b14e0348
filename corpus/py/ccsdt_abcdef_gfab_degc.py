"""ccsdt_abcdef_gfab_degc.c: a directive with a label."""

from mdh_lift import add, cc, combine_ops, mdh, name, pw


@mdh(combine_ops(a=cc, b=cc, c=cc, d=cc, e=cc, f=cc, g=pw(add)), name("triples"))
def contract_gfab_degc(na: "int32", nb: "int32", nc: "int32", nd: "int32", ne: "int32", nf: "int32", ng: "int32",
                       t3: "restrict float32[:]", t2: "restrict float32[:]", v2: "restrict float32[:]"):
    for a in range(na):
        for b in range(nb):
            for c in range(nc):
                for d in range(nd):
                    for e in range(ne):
                        for f in range(nf):
                            for g in range(ng):
                                t3[((((a * nb + b) * nc + c) * nd + d) * ne + e) * nf + f] += (
                                    t2[((g * nf + f) * na + a) * nb + b] * v2[((d * ne + e) * ng + g) * nc + c]
                                )
