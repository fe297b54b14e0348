"""ccsdt_abcdef_geab_dfgc.c: doubles of constant size."""

from mdh_lift import mdh

NA = 4
NB = 3
NC = 7
ND = 5
NE = 6
NF = 5
NG = 13


@mdh
def contract_geab_dfgc(out: "float64[:, NB, NC, ND, NE, NF]", lhs: "float64[:, NE, NA, NB]",
                       rhs: "float64[:, NF, NG, NC]"):
    for a in range(NA):
        for b in range(NB):
            for c in range(NC):
                for d in range(ND):
                    for e in range(NE):
                        for f in range(NF):
                            for g in range(NG):
                                out[a, b, c, d, e, f] += lhs[g, e, a, b] * rhs[d, f, g, c]
