"""uint64_xor_hash.c: a hash in which the position matters; the arithmetic wraps on purpose."""

import numpy as np

from mdh_lift import mdh

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX = np.uint64(0xBF58476D1CE4E5B9)


@mdh
def hash_table(word: "restrict uint64[:]", n: "uint64", seed: "uint64"):
    hash = seed
    for i in range(n):
        x = word[i] + np.uint64(i + 1) * GOLDEN
        x = (x ^ (x >> 31)) * MIX
        x ^= x >> 29
        hash ^= x
    return hash
