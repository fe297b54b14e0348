"""ccsdt_abcdef_gfac_degb.c: global arrays of constant size."""

from mdh_lift import mdh

NA = 4
NB = 3
NC = 7
ND = 5
NE = 6
NF = 5
NG = 13


@mdh
def contract_gfac_degb(T3: "float32[NA, NB, NC, ND, NE, NF]", T2: "float32[NG, NF, NA, NC]",
                       V2: "float32[ND, NE, NG, NB]"):
    for a in range(NA):
        for b in range(NB):
            for c in range(NC):
                for d in range(ND):
                    for e in range(NE):
                        for f in range(NF):
                            for g in range(NG):
                                T3[a, b, c, d, e, f] += T2[g, f, a, c] * V2[d, e, g, b]
