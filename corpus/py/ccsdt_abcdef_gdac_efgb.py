"""ccsdt_abcdef_gdac_efgb.c: flat arrays."""

from mdh_lift import mdh


@mdh
def contract_gdac_efgb(C: "float32[:]", A: "float32[:]", B: "float32[:]",
                       na: "int32", nb: "int32", nc: "int32", nd: "int32", ne: "int32", nf: "int32", ng: "int32"):
    for a in range(na):
        for b in range(nb):
            for c in range(nc):
                for d in range(nd):
                    for e in range(ne):
                        for f in range(nf):
                            for g in range(ng):
                                C[((((a * nb + b) * nc + c) * nd + d) * ne + e) * nf + f] += (
                                    A[((g * nd + d) * na + a) * nc + c] * B[((e * nf + f) * ng + g) * nb + b]
                                )
