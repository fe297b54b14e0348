"""Folding of an RNA strand after Nussinov: the largest number of bonds within every stretch i..j."""

from mdh_lift import mdh

HAIRPIN = 3  # no fewer bases within the innermost bond


def bond(a, b) -> "int32":
    """Bases are 0..3 for A, C, G, U; A bonds with U, C with G."""
    return 1 if a + b == 3 else 0


@mdh
def nussinov(n: "int32", base: "int32[:]", table: "int32[n, n]"):
    for i in range(n - 1, -1, -1):
        table[i, i] = 0
        for j in range(i + 1, n):
            best = table[i, j - 1] if table[i, j - 1] > table[i + 1, j] else table[i + 1, j]

            if j - i > HAIRPIN:
                best = (
                    best
                    if best > table[i + 1, j - 1] + bond(base[i], base[j])
                    else table[i + 1, j - 1] + bond(base[i], base[j])
                )
            for k in range(i + 1, j):
                best = best if best > table[i, k] + table[k + 1, j] else table[i, k] + table[k + 1, j]
            table[i, j] = best
