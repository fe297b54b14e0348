"""gen_histo.c: the greatest weight per bin, and half of the sum of the weights."""

from mdh_lift import mdh

INT32_MIN = -(2**31)


@mdh
def histo_max(best: "int32[:]", key: "uint16[:]", weight: "int32[:]", bin: "uint16[:]", ne: "uint64", nb: "uint64"):
    for e in range(ne):
        for b in range(nb):
            best[b] = (
                best[b]
                if best[b] > (weight[e] if key[e] == bin[b] else INT32_MIN)
                else (weight[e] if key[e] == bin[b] else INT32_MIN)
            )


@mdh
def histo_weighted(total: "float64[:]", key: "uint16[:]", weight: "int32[:]", bin: "uint16[:]", ne: "uint64",
                   nb: "uint64"):
    for e in range(ne):
        for b in range(nb):
            share = 0.0
            if key[e] == bin[b]:
                share = 0.5 * weight[e]
            total[b] = share + total[b]
