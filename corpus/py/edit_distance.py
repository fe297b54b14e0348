"""Table of edit distances between the prefixes of two strings."""

from mdh_lift import mdh


@mdh
def edit_distance(n: "int32", m: "int32", s: "int8[:]", t: "int8[:]", d: "restrict int32[n + 1, m + 1]"):
    for i in range(n + 1):
        d[i, 0] = i
    for j in range(1, m + 1):
        d[0, j] = j
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            change = d[i - 1, j - 1] + (0 if s[i - 1] == t[j - 1] else 1)
            gap = (d[i - 1, j] if d[i - 1, j] < d[i, j - 1] else d[i, j - 1]) + 1
            d[i, j] = change if change < gap else gap
