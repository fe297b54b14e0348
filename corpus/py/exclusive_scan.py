"""Where each bucket starts: the sum of the counts before it."""

from mdh_lift import mdh


@mdh
def exclusive_scan(n: "int32", count: "uint32[:]", start: "uint32[:]"):
    run = 0
    for i in range(n):
        start[i] = run
        run += count[i]
