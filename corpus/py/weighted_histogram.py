"""Histogram with weights: every element adds its weight to the bin that an index array names."""

from mdh_lift import mdh


@mdh
def weighted_histogram(ne: "uint64", nb: "uint64", bin: "uint16[:]", weight: "float64[:]", hist: "float64[nb]"):
    for e in range(ne):
        hist[bin[e]] += weight[e]
