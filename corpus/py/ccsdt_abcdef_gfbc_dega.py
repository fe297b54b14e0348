"""ccsdt_abcdef_gfbc_dega.c: an accumulator that starts from the old value."""

from mdh_lift import mdh


@mdh("combine_ops(cc, cc, cc, cc, cc, cc, pw(+))")
def contract_gfbc_dega(na: "uint64", nb: "uint64", nc: "uint64", nd: "uint64", ne: "uint64", nf: "uint64", ng: "uint64",
                       out: "restrict float32[na, nb, nc, nd, ne, nf]",
                       lhs: "restrict float32[ng, nf, nb, nc]", rhs: "restrict float32[nd, ne, ng, na]"):
    for a in range(na):
        for b in range(nb):
            for c in range(nc):
                for d in range(nd):
                    for e in range(ne):
                        for f in range(nf):
                            acc = out[a, b, c, d, e, f]
                            for g in range(ng):
                                acc += lhs[g, f, b, c] * rhs[d, e, g, a]
                            out[a, b, c, d, e, f] = acc
