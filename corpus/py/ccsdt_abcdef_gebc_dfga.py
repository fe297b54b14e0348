"""ccsdt_abcdef_gebc_dfga.c: the contracted dimension outermost."""

from mdh_lift import mdh


@mdh
def contract_gebc_dfga(na: "int64", nb: "int64", nc: "int64", nd: "int64", ne: "int64", nf: "int64", ng: "int64",
                       t3: "float32[na, nb, nc, nd, ne, nf]", t2: "float32[ng, ne, nb, nc]",
                       v2: "float32[nd, nf, ng, na]"):
    for g in range(ng):
        for a in range(na):
            for b in range(nb):
                for c in range(nc):
                    for d in range(nd):
                        for e in range(ne):
                            for f in range(nf):
                                t3[a, b, c, d, e, f] = t3[a, b, c, d, e, f] + t2[g, e, b, c] * v2[d, f, g, a]
