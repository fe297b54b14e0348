"""histo.c: counts elements per bin."""

from mdh_lift import mdh

E = 20011
B = 61


@mdh
def histogram(elems: "int32[E]", bins: "int32[B]", out: "int32[B]"):
    for e in range(E):
        for b in range(B):
            out[b] += 1 if elems[e] == bins[b] else 0
