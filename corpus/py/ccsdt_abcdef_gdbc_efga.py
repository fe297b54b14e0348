"""ccsdt_abcdef_gdbc_efga.c: flat arrays of constant size, summed up before they are added."""

import numpy as np

from mdh_lift import mdh

NA = 5
NB = 7
NC = 4
ND = 6
NE = 5
NF = 3
NG = 11


@mdh
def contract_gdbc_efga(out: "restrict float32[:]", lhs: "restrict float32[:]", rhs: "restrict float32[:]"):
    for a in range(NA):
        for b in range(NB):
            for c in range(NC):
                for d in range(ND):
                    for e in range(NE):
                        for f in range(NF):
                            sum = np.float32(0)
                            for g in range(NG):
                                sum += lhs[((g * ND + d) * NB + b) * NC + c] * rhs[((e * NF + f) * NG + g) * NA + a]
                            out[((((a * NB + b) * NC + c) * ND + d) * NE + e) * NF + f] += sum
