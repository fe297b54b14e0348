"""reduce_bits.c: three reductions over one dimension."""

from mdh_lift import mdh

N = 100003


@mdh
def fold_bits(common: "uint32", any: "uint32", parity: "uint32", word: "uint32[N]"):
    for i in range(N):
        common &= word[i]
        any |= word[i]
        parity ^= word[i]
    return common, any, parity
