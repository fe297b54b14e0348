"""ccsdt_abcdef_geac_dfgb.c: pointers to whole arrays are arrays with one dimension more."""

from mdh_lift import mdh

NA = 5
NB = 7
NC = 4
ND = 6
NE = 5
NF = 3
NG = 11


@mdh
def contract_geac_dfgb(t3: "float32[:, NA, NB, NC, ND, NE, NF]", t2: "float32[:, NG, NE, NA, NC]",
                       v2: "float32[:, ND, NF, NG, NB]"):
    for a in range(NA):
        for b in range(NB):
            for c in range(NC):
                for d in range(ND):
                    for e in range(NE):
                        for f in range(NF):
                            for g in range(NG):
                                t3[0][a][b][c][d][e][f] = v2[0][d][f][g][b] * t2[0][g][e][a][c] + t3[0][a][b][c][d][e][f]
