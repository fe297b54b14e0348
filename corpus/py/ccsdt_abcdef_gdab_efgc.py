"""ccsdt_abcdef_gdab_efgc.c: a contraction of coupled cluster theory."""

from mdh_lift import mdh


@mdh
def contract_gdab_efgc(na: "int32", nb: "int32", nc: "int32", nd: "int32", ne: "int32", nf: "int32", ng: "int32",
                       C: "restrict float32[na, nb, nc, nd, ne, nf]", A: "restrict float32[ng, nd, na, nb]",
                       B: "restrict float32[ne, nf, ng, nc]"):
    for a in range(na):
        for b in range(nb):
            for c in range(nc):
                for d in range(nd):
                    for e in range(ne):
                        for f in range(nf):
                            for g in range(ng):
                                C[a, b, c, d, e, f] += A[g, d, a, b] * B[e, f, g, c]
